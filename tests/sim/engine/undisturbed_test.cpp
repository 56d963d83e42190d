#include "sim/engine/engine.h"

#include <random>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/sim/engine/random_program.h"

namespace bucketwise {
namespace {

TEST_CASE("a step without its events equals the engine's, rank by rank, on 3,000 random programs",
          "[undisturbed]") {
    std::mt19937 random(5);
    for (int round = 0; round < 3000; ++round) {
        const Program outline = random_outline(random);
        std::vector<Program> ranks;
        std::vector<RankProgress> progress;
        for (int rank = round % 5; rank >= 0; --rank) {
            ranks.push_back(with_random_times(outline, random));
            const auto start = [&] {
                return Duration{std::uniform_int_distribution<int>(0, 500)(random)};
            };
            progress.push_back({start(), start(), {.forward = start()}});
        }
        const Simulation engine = simulate(ranks, Record::times_only, progress);
        REQUIRE_FALSE(disturbs(outline));
        run_undisturbed(ranks, progress);
        REQUIRE(progress == engine.progress);
    }
}

TEST_CASE("likewise with side streams, on 3,000 random programs", "[undisturbed]") {
    std::mt19937 random(6);
    for (int round = 0; round < 3000; ++round) {
        const Program outline = with_side_streams(random_outline(random), random);
        std::vector<Program> ranks;
        std::vector<RankProgress> progress;
        for (int rank = round % 5; rank >= 0; --rank) {
            ranks.push_back(with_random_times(outline, random));
            const auto start = [&] {
                return Duration{std::uniform_int_distribution<int>(0, 500)(random)};
            };
            progress.push_back({.host = start(), .device = start(), .sides = {{start(), start()}}});
            progress.back().queue.ends.assign(static_cast<std::size_t>(round % 7), start());
        }
        const Simulation engine = simulate(ranks, Record::times_only, progress);
        run_undisturbed(ranks, progress);
        REQUIRE(progress == engine.progress);
    }
}

TEST_CASE("likewise with launches ahead and two communication streams, on 3,000 random programs",
          "[undisturbed]") {
    std::mt19937 random(7);
    for (int round = 0; round < 3000; ++round) {
        Program outline = random_outline(random);
        outline.host_is_device = false;
        outline = with_communication_beside(std::move(outline), random);
        std::vector<Program> ranks;
        std::vector<RankProgress> progress;
        for (int rank = round % 5; rank >= 0; --rank) {
            ranks.push_back(with_random_times(outline, random));
            const auto start = [&] {
                return Duration{std::uniform_int_distribution<int>(0, 500)(random)};
            };
            progress.push_back({start(), start(), {.forward = start()}});
            progress.back().queue.ends.assign(static_cast<std::size_t>(round % 7), start());
        }
        const Simulation engine = simulate(ranks, Record::times_only, progress);
        run_undisturbed(ranks, progress);
        REQUIRE(progress == engine.progress);
    }
}

TEST_CASE("a program disturbs if any of its collectives does", "[undisturbed]") {
    Program program;
    CHECK_FALSE(disturbs(program));
    program.collectives = {{}, {}};
    program.collectives.back().interference = {1'000'000, 1'000'001};
    CHECK(disturbs(program));
}

}  // namespace
}  // namespace bucketwise
