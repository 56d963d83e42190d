// Among the tests that ThreadSanitizer watches: these run threads.
#include "cli/shell/parallel_texts.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/predict/what_if.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr int most_threads = 8;

TEST_CASE("texts are the same, in order, however many threads make them") {
    for (int threads = 1; threads <= most_threads; ++threads) {
        for (const std::int64_t count : {0, 1, 7, 500}) {
            int reports = 0;
            const std::vector<std::string> texts =
                ParallelTexts(count, threads)
                    .make(
                        [] {
                            // One thread alone counts with it.
                            auto made = std::make_shared<int>(0);
                            return [made](std::int64_t number) {
                                ++*made;
                                return std::to_string(number * number);
                            };
                        },
                        [&](double done) { reports += done >= 0 && done < 1 ? 1 : 0; });
            REQUIRE(std::ssize(texts) == count);
            bool as_expected = true;
            for (std::int64_t i = 0; i < count; ++i) {
                as_expected =
                    as_expected && texts[static_cast<std::size_t>(i)] == std::to_string(i * i);
            }
            CHECK(as_expected);
            CHECK((threads > 1 || reports == count));
        }
    }
}

TEST_CASE("the first text that fails is the one complained of, however many threads there are") {
    for (int threads = 1; threads <= most_threads; ++threads) {
        std::string complaint;
        try {
            ParallelTexts(300, threads)
                .make(
                    [] {
                        return [](std::int64_t number) -> std::string {
                            // 90, 120, 150 ... fail; a later one may do so earlier.
                            if (number >= 90 && number % 30 == 0) {
                                throw std::runtime_error(std::to_string(number));
                            }
                            return "";
                        };
                    },
                    [](double) {});
        } catch (const std::runtime_error& error) {
            complaint = error.what();
        }
        CHECK(complaint == "90");
    }
}

TEST_CASE("a maker that cannot be made is complained of as well") {
    const auto make = [](int threads) {
        return ParallelTexts(10, threads)
            .make([]() -> TextMaker { throw std::runtime_error("no maker"); }, [](double) {});
    };
    CHECK_THROWS_AS(make(1), std::runtime_error);
    CHECK_THROWS_AS(make(4), std::runtime_error);
}

// Nothing of a what-if is shared but what all only read.
TEST_CASE("what-ifs on several threads are those of one") {
    const Json document = {
        {"name", "threads"},
        {"workload",
         {{"forward_ms", 1},
          {"backward_ms", 3},
          {"gradients",
           {{{"name", "a"}, {"numel", 262'144}, {"dtype", "float32"}, {"ready_ms", 3}},
            {{"name", "b"}, {"numel", 524'288}, {"dtype", "float32"}, {"ready_ms", 1}}}}}},
        {"cluster",
         {{"ranks", 2},
          {"link",
           {{"name", "slow"},
            {"algorithm", "ring"},
            {"segments", {{{"latency_us", 50}, {"bandwidth_gb_per_s", 1}}}}}}}},
        {"sync", {{"strategy", "ddp"}}}};
    const Grid grid({{"/cluster/ranks", {2, 4, 8}},
                     {"/cluster/link/segments/0/latency_us", {1, 10, 100}},
                     {"/sync/bucket_cap_mib", {1, 2, 25}}});
    const auto rows = [&](int threads) {
        return ParallelTexts(grid.points(), threads)
            .make(
                [&] {
                    auto what_ifs = std::make_shared<WhatIfs>(
                        document, "s.json", [](const std::string&) { return ""; }, grid,
                        CapChoice{});
                    return [what_ifs](std::int64_t point) {
                        return std::to_string(what_ifs->evaluate(point).times.step().count());
                    };
                },
                [](double) {});
    };
    const std::vector<std::string> alone = rows(1);
    CHECK(alone.size() == 27);
    CHECK(rows(2) == alone);
    CHECK(rows(most_threads) == alone);
}

}  // namespace
}  // namespace bucketwise
