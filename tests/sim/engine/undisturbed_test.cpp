#include "sim/engine/engine.h"

#include <random>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/sim/engine/random_program.h"

namespace bucketwise {
namespace {

// The programs of up to five ranks that differ in times and starts, by the pass and by the engine.
template <typename Outline>
void compare_with_engine(unsigned seed, bool queues, bool sides, const Outline& outline_of) {
    std::mt19937 random(seed);
    for (int round = 0; round < 3000; ++round) {
        const Program outline = outline_of(random);
        REQUIRE_FALSE(disturbs(outline));
        std::vector<Program> ranks;
        std::vector<RankProgress> progress;
        const auto start = [&] {
            return Duration{std::uniform_int_distribution<int>(0, 500)(random)};
        };
        for (int rank = round % 5; rank >= 0; --rank) {
            ranks.push_back(with_random_times(outline, random));
            progress.push_back({start(), start(), {.forward = start()}});
            if (sides) {
                progress.back().sides = {{start(), start()}};
            }
            if (queues) {
                progress.back().queue.ends.assign(static_cast<std::size_t>(round % 7), start());
            }
        }
        const Simulation engine = simulate(ranks, Record::times_only, progress);
        run_undisturbed(ranks, progress);
        REQUIRE(progress == engine.progress);
    }
}

TEST_CASE("a step without events equals the engine's, rank by rank, on 3,000 random programs",
          "[undisturbed]") {
    compare_with_engine(5, false, false, random_outline);
}

TEST_CASE("with side streams it does, on 3,000 random programs", "[undisturbed]") {
    compare_with_engine(6, true, true, [](std::mt19937& random) {
        return with_side_streams(random_outline(random), random);
    });
}

TEST_CASE("with launches ahead and two communication streams it does, on 3,000 random programs",
          "[undisturbed]") {
    compare_with_engine(7, true, false, [](std::mt19937& random) {
        Program outline = random_outline(random);
        outline.host_is_device = false;
        return with_communication_beside(std::move(outline), random);
    });
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
