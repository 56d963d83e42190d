// One rank without a queue of events against the engine.
#include <cstdint>
#include <random>

#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "tests/catch.h"
#include "tests/sim/engine/random_program.h"

namespace bucketwise {
namespace {

// Whether the communication stream goes on when an operation begins or ends.
bool has_tie(const Timeline& timeline) {
    for (const Span& collective : timeline.spans) {
        for (const Span& operation : timeline.spans) {
            if (collective.track == Track::communication && operation.track == Track::compute &&
                (collective.end == operation.start || collective.end == operation.end ||
                 collective.start == operation.end)) {
                return true;
            }
        }
    }
    return false;
}

struct RandomRun {
    Program program;
    RankProgress start;
};

// No number is far above `most`.
RandomRun random_run(std::mt19937& random, int most, bool delays, bool alike, bool beside = false) {
    const auto between = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    RandomRun run;
    const Program outline = random_outline(random);
    run.program =
        with_random_times(beside ? with_side_streams(outline, random) : outline, random, most);
    const auto slowdown_ppm = [&]() -> std::int64_t {
        const int kind = between(0, 3);
        return kind == 3 ? between(1'000'000, 5'000'000) : 1'000'000 + kind * 500'000;
    };
    Interference interference;
    for (Collective& collective : run.program.collectives) {
        collective.time = Duration{between(0, 3) * between(0, 2 * most)};
        collective.placing = Duration{between(0, 1) * between(0, most)};
        if (!alike || interference == Interference{}) {
            interference = {slowdown_ppm(), slowdown_ppm(),
                            Duration{delays ? between(0, most) : 0}};
        }
        collective.interference = interference;
    }
    const auto moment = [&] { return Duration{between(-2 * most, 2 * most)}; };
    run.start = {.host = between(0, 4) == 0 ? far_ahead : moment(),
                 .device = moment(),
                 .times = {.forward = moment(), .finishing_host = moment()}};
    if (between(0, 1) == 0) {
        LaunchQueue& queue = run.start.queue;
        for (int length = between(1, 12); length > 0; --length) {
            queue.ends.push_back(moment());
        }
        queue.next = static_cast<std::size_t>(between(0, 11)) % queue.ends.size();
    }
    return run;
}

TEST_CASE(
    "one rank that is disturbed, without its events, equals the engine's on 12,000 random programs",
    "[disturbed]") {
    std::mt19937 random(23);
    int disturbed = 0;
    int tied = 0;
    for (int round = 0; round < 12'000; ++round) {
        // A third each with numbers up to 3, up to 400, and up to what a step may take.
        const int most = round % 3 == 0 ? 3 : round % 3 == 1 ? 400 : 100'000'000;
        const RandomRun run = random_run(random, most, round % 2 == 0, round % 4 < 2);
        const Simulation engine = simulate({&run.program, 1}, Record::timeline, run.start);
        RankProgress progress = run.start;
        run_disturbed(run.program, progress);
        INFO(round);
        REQUIRE(progress == engine.progress.front());
        disturbed += disturbs(run.program) ? 1 : 0;
        tied += disturbs(run.program) && has_tie(engine.timeline) ? 1 : 0;
        // As a whole it chooses the same.
        progress = run.start;
        if (disturbs(run.program)) {
            run_programs({&run.program, 1}, {&progress, 1});
            REQUIRE(progress == engine.progress.front());
        }
    }
    CHECK(disturbed > 9000);
    CHECK(tied > 3000);
}

TEST_CASE("with side streams it equals the engine's, on 6,000 random programs", "[disturbed]") {
    std::mt19937 random(29);
    for (int round = 0; round < 6000; ++round) {
        const int most = round % 3 == 0 ? 3 : round % 3 == 1 ? 400 : 100'000'000;
        const RandomRun run = random_run(random, most, round % 2 == 0, round % 4 < 2, true);
        const Simulation engine = simulate({&run.program, 1}, Record::timeline, run.start);
        RankProgress progress = run.start;
        run_disturbed(run.program, progress);
        INFO(round);
        REQUIRE(progress == engine.progress.front());
    }
}

}  // namespace
}  // namespace bucketwise
