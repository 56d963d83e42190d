#include <mutex>
#include <utility>
#include <vector>

#include "hw/cpu/cpu_devices.h"
#include "sim/workload/batch_norm_layer.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/batch_norm/batch_norm_reference.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using testing::BatchNormCase;
using testing::on_ranks;
using testing::values_of;

constexpr std::array both_ways{BatchNormSync::gather, BatchNormSync::fused};

struct LayerRun {
    BatchNormCase layer;
    BatchNormSync sync = BatchNormSync::gather;
    BatchNormPasses passes = BatchNormPasses::both;
};

// The results of act(layer) of each run by rank, one run after the other on the same connections.
template <typename Act>
auto on_same_ranks(int ranks, const std::vector<LayerRun>& runs, const Act& act) {
    using Result = decltype(act(std::declval<SyncBatchNorm&>()));
    std::vector<std::vector<Result>> results(runs.size(),
                                             std::vector<Result>(static_cast<std::size_t>(ranks)));
    testing::require_well(on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const auto device =
                cpu_batch_norm(connection.communicator(AllReduceImplementation::library));
            SyncBatchNorm layer(*device, runs[i].sync, runs[i].passes,
                                values_of(runs[i].layer, rank));
            results[i][static_cast<std::size_t>(rank)] = act(layer);
        }
    }));
    return results;
}

std::vector<std::vector<BatchNormResult>> results_of(int ranks, const std::vector<LayerRun>& runs) {
    return on_same_ranks(ranks, runs, [](SyncBatchNorm& layer) { return layer.run(); });
}

std::vector<BatchNormResult> results_of(const BatchNormCase& c, BatchNormSync sync) {
    return results_of(static_cast<int>(c.rows.size()), {{.layer = c, .sync = sync}}).front();
}

// After two steps.
std::vector<std::vector<std::int64_t>> peaks_of(int ranks, const std::vector<LayerRun>& runs) {
    return on_same_ranks(ranks, runs, [](SyncBatchNorm& layer) {
        layer.repeat(2, {});
        return layer.peak_bytes();
    });
}

TEST_CASE("a layer over 1 to 8 ranks is one layer over the whole batch, however it is divided") {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        std::vector<LayerRun> runs;
        for (const BatchNormCase& c : testing::cases_on(ranks)) {
            for (const BatchNormSync sync : both_ways) {
                runs.push_back({.layer = c, .sync = sync});
            }
        }
        const std::vector<std::vector<BatchNormResult>> results = results_of(ranks, runs);
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const BatchNormCase& c = runs[i].layer;
            CAPTURE(ranks, c.channels, c.rows, c.offset, name_of(runs[i].sync));
            CHECK(testing::what_is_wrong(c, results[i]).empty());
        }
    }
}

// Counted on real ranks, and from the simulator's list of events.
TEST_CASE("a layer's peak of memory is the simulator's, to the byte") {
    for (const int ranks : {1, 2, 5, 8}) {
        std::vector<LayerRun> runs;
        std::vector<std::int64_t> expected;
        for (const std::int64_t rows : {0, 1, 3, 32}) {
            for (const std::int64_t channels : {1, 100, 128, 1000}) {
                for (const BatchNormPasses passes : every<BatchNormPasses>) {
                    for (const BatchNormSystem system :
                         {BatchNormSystem::gather, BatchNormSystem::fused}) {
                        runs.push_back({.layer = {.rows = std::vector<std::int64_t>(
                                                      static_cast<std::size_t>(ranks), rows),
                                                  .channels = channels},
                                        .sync = real_layer_of(system).value(),
                                        .passes = passes});
                        expected.push_back(
                            memory_peak(events_of({system, passes, rows, channels, ranks}))
                                .size.count);
                    }
                }
            }
        }
        const std::vector<std::vector<std::int64_t>> peaks = peaks_of(ranks, runs);
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const LayerRun& run = runs[i];
            CAPTURE(ranks, run.layer.rows, run.layer.channels, name_of(run.passes),
                    name_of(run.sync));
            CHECK(peaks[i] ==
                  std::vector<std::int64_t>(static_cast<std::size_t>(ranks), expected[i]));
        }
    }
}

// One rank's batch alone has another mean: what is not synchronised must be seen.
TEST_CASE("statistics of one rank alone are not those of all") {
    const BatchNormCase together{.rows = {16, 16}, .channels = 4};
    std::vector<BatchNormResult> alone;
    for (const int rank : {0, 1}) {
        testing::require_well(on_ranks(1, [&](GlooConnection& connection, int /*rank*/) {
            const auto device =
                cpu_batch_norm(connection.communicator(AllReduceImplementation::library));
            SyncBatchNorm layer(*device, BatchNormSync::gather, BatchNormPasses::both,
                                values_of(together, rank));
            alone.push_back(layer.run());
        }));
    }
    const std::string wrong = testing::what_is_wrong(together, alone);
    CHECK(testing::contains(wrong, "output off by"));
    CHECK(testing::contains(wrong, "input gradient off by"));
    CHECK(testing::contains(wrong, "running mean off by"));
}

TEST_CASE("every rank comes to the same statistics, to the bit") {
    const BatchNormCase c{.rows = {3, 8, 0, 5}, .channels = 37};
    for (const BatchNormSync sync : both_ways) {
        const std::vector<BatchNormResult> results = results_of(c, sync);
        for (const BatchNormResult& result : results) {
            CHECK(result.running_mean == results.front().running_mean);
            CHECK(result.running_variance == results.front().running_variance);
        }
    }
}

TEST_CASE("forward alone gives the same output and no gradients, and running statistics go on") {
    const BatchNormCase c{.rows = {6, 2}, .channels = 3};
    std::vector<BatchNormResult> first(2);
    std::vector<BatchNormResult> second(2);
    testing::require_well(on_ranks(2, [&](GlooConnection& connection, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        const auto device =
            cpu_batch_norm(connection.communicator(AllReduceImplementation::library));
        SyncBatchNorm layer(*device, BatchNormSync::fused, BatchNormPasses::forward,
                            values_of(c, rank));
        first[index] = layer.run();
        second[index] = layer.run();
    }));
    const std::vector<BatchNormResult> with_backward = results_of(c, BatchNormSync::fused);
    CHECK(first[1].output == with_backward[1].output);
    CHECK(first[1].input_gradient.empty());
    // 0.1 m, then 0.9 * 0.1 m + 0.1 m = 1.9 times as much.
    CHECK(second[0].running_mean[2] == Approx(1.9 * first[0].running_mean[2]));
}

TEST_CASE("a pool hands memory out again, and its peak counts whole blocks of what is live") {
    int asked = 0;
    TensorPool pool([&](std::int64_t bytes) {
        ++asked;
        return std::shared_ptr<std::byte>(new std::byte[static_cast<std::size_t>(bytes)],
                                          std::default_delete<std::byte[]>());
    });
    {
        const TensorMemory one = pool.floats(1);      // 512
        TensorMemory two = pool.floats(128);          // 512
        const TensorMemory three = pool.doubles(64);  // 512
        const TensorMemory four = pool.floats(129);   // 1024
        const TensorMemory none = pool.floats(0);     // 0
        CHECK(pool.count().current == 2560);
        CHECK(none.floats() == nullptr);
        two = TensorMemory();
        CHECK(pool.count().current == 2048);
        two = pool.floats(100);
    }
    CHECK(asked == 4);
    CHECK(pool.count().current == 0);
    CHECK(pool.count().peak == 2560);
    pool.count().restart_peak();
    CHECK(pool.count().peak == 0);
}

}  // namespace
}  // namespace bucketwise
