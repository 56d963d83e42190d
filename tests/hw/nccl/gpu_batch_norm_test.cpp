#include <array>
#include <vector>

#include "hw/nccl/gpu_devices.h"
#include "tests/catch.h"
#include "tests/hw/batch_norm/batch_norm_reference.h"
#include "tests/hw/nccl/gpu_ranks.h"

namespace bucketwise {
namespace {

using testing::BatchNormCase;
using testing::on_gpus;
using testing::possible_ranks;
using testing::values_of;

constexpr std::array both_ways{BatchNormSync::gather, BatchNormSync::fused};

struct LayerRun {
    BatchNormCase layer;
    BatchNormSync sync;
};

// By run, then by rank: one run after the other with the same communicators.
std::vector<std::vector<BatchNormResult>> results_of(int ranks, const std::vector<LayerRun>& runs) {
    std::vector<std::vector<BatchNormResult>> results(
        runs.size(), std::vector<BatchNormResult>(static_cast<std::size_t>(ranks)));
    testing::require_well(
        on_gpus(ranks, [&](Communicators& communicators, ControlGroup&, int rank) {
            for (std::size_t i = 0; i < runs.size(); ++i) {
                const auto device = gpu_batch_norm(communicators);
                SyncBatchNorm layer(*device, runs[i].sync, BatchNormPasses::both,
                                    values_of(runs[i].layer, rank));
                results[i][static_cast<std::size_t>(rank)] = layer.run();
            }
        }));
    return results;
}

TEST_CASE("a layer over GPUs is one layer over the whole batch, however it is divided") {
    for (const int ranks : possible_ranks({1, 2, 3, 8})) {
        std::vector<LayerRun> runs;
        for (const BatchNormCase& c : testing::cases_on(ranks)) {
            for (const BatchNormSync sync : both_ways) {
                runs.push_back({c, sync});
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

TEST_CASE("steps of a layer on GPUs are timed one by one, and its memory is the same for all") {
    for (const int ranks : possible_ranks({2})) {
        const BatchNormCase c{.rows = {32, 32}, .channels = 128};
        std::array<std::size_t, 2> counts{};
        std::array<std::int64_t, 2> peaks{};
        testing::require_well(
            on_gpus(ranks, [&](Communicators& communicators, ControlGroup&, int rank) {
                const auto index = static_cast<std::size_t>(rank);
                const auto device = gpu_batch_norm(communicators);
                SyncBatchNorm layer(*device, BatchNormSync::fused, BatchNormPasses::both,
                                    values_of(c, rank));
                layer.run();
                const std::int64_t first_peak = layer.peak_bytes();
                const std::vector<Duration> times = layer.repeat(3, {});
                counts.at(index) = times.size();
                peaks.at(index) = layer.peak_bytes() == first_peak ? first_peak : -1;
            }));
        CHECK(counts == std::array<std::size_t, 2>{3, 3});
        // Input, output and both gradients of 16,384 bytes, ten vectors of 512 (weight, bias, two
        // running, mean, deviation, two gradients, two sums) and the count's block of 512.
        CHECK(peaks == std::array<std::int64_t, 2>{71'168, 71'168});
    }
}

}  // namespace
}  // namespace bucketwise
