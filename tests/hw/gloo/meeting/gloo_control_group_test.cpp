#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "hw/gloo/connection.h"
#include "tests/catch.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using testing::on_ranks;

TEST_CASE("nobody leaves a barrier before everybody has come") {
    constexpr int ranks = 5;
    std::atomic<int> arrived{0};
    std::atomic<int> left_early{0};
    testing::require_well(on_ranks(ranks, [&](GlooConnection& connection, int) {
        for (int round = 1; round <= 50; ++round) {
            ++arrived;
            connection.control().barrier();
            left_early += arrived < round * ranks ? 1 : 0;
        }
    }));
    CHECK(left_early == 0);
}

TEST_CASE("the first rank's values reach all ranks, and all ranks' values reach the first") {
    for (const int ranks : {1, 2, 7}) {
        std::vector<std::vector<std::int64_t>> sent(static_cast<std::size_t>(ranks));
        std::vector<std::vector<double>> gathered(static_cast<std::size_t>(ranks));
        const auto outcomes = on_ranks(ranks, [&](GlooConnection& connection, int rank) {
            const auto index = static_cast<std::size_t>(rank);
            sent[index] = {rank + 10, rank + 20, INT64_MAX - rank};
            connection.control().broadcast_from_first(sent[index]);
            gathered[index] =
                connection.control().gather_to_first(std::array{rank + 0.5, -1.0 * rank});
            connection.control().broadcast_from_first({});
            if (!connection.control().gather_to_first({}).empty()) {
                throw std::logic_error("gathered something from nothing");
            }
        });
        CAPTURE(ranks);
        REQUIRE(testing::first_reason(outcomes).empty());
        std::vector<double> expected;
        for (int rank = 0; rank < ranks; ++rank) {
            CHECK(sent[static_cast<std::size_t>(rank)] ==
                  std::vector<std::int64_t>{10, 20, INT64_MAX});
            expected.insert(expected.end(), {rank + 0.5, -1.0 * rank});
        }
        CHECK(gathered.front() == expected);
        for (std::size_t rank = 1; rank < gathered.size(); ++rank) {
            CHECK(gathered[rank].empty());
        }
    }
}

TEST_CASE("the control group works in one thread while the communicators do in another") {
    constexpr int ranks = 3;
    std::array<double, ranks> sums{};
    std::array<double, ranks> last{};
    testing::require_well(on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        testing::RankOutcome reduced;
        std::thread reducing([&] {
            reduced = testing::outcome_of([&] {
                for (int round = 0; round < 100; ++round) {
                    std::array<double, 50> data{};
                    data.fill(rank);
                    connection.communicator(AllReduceImplementation::direct)
                        .all_reduce_sum(data.data(), std::ssize(data), DType::float64);
                    sums.at(index) += data.back();
                }
            });
        });
        for (int round = 0; round < 100; ++round) {
            const auto values = connection.control().gather_to_first(std::array{1.0 * round});
            last.at(index) = values.empty() ? 0 : values.back();
        }
        reducing.join();
        if (reduced.ending != testing::Ending::well) {
            throw std::runtime_error(reduced.reason);
        }
    }));
    CHECK(sums == std::array<double, ranks>{300, 300, 300});  // 100 (0 + 1 + 2)
    CHECK(last == std::array<double, ranks>{99, 0, 0});
}

}  // namespace
}  // namespace bucketwise
