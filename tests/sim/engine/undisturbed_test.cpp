#include "sim/engine/engine.h"

#include <random>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {
namespace {

// What one rank issues, up to how long each instruction takes.
Program random_outline(std::mt19937& random) {
    const auto between = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    Program program;
    program.host_is_device = between(0, 2) == 0;
    std::int32_t launched = 0;
    for (int i = between(1, 60); i > 0; --i) {
        Instruction instruction;
        instruction.phase = static_cast<Phase>(between(0, 2));
        instruction.finishing = between(0, 3) == 0;
        const int kind = between(0, 5);
        if (kind == 0) {
            instruction.kind = InstructionKind::launch;
            instruction.subject = launched++;
            program.collectives.push_back(
                {CollectiveKind::all_reduce, 0, {1}, Duration{between(0, 3) * between(0, 900)}});
        } else if (kind == 1 && launched > 0) {
            instruction.kind = InstructionKind::wait;
            instruction.subject = between(0, launched - 1);
        } else {
            instruction.kind =
                between(0, 1) == 0 ? InstructionKind::backward : InstructionKind::copy_back;
        }
        program.instructions.push_back(instruction);
    }
    return program;
}

// Small numbers, zeros among them, so that many moments coincide.
Program with_random_times(Program program, std::mt19937& random) {
    std::uniform_int_distribution<int> small(-200, 400);
    for (Instruction& instruction : program.instructions) {
        instruction.host = Duration{std::max(small(random), 0)};
        if (is_compute(instruction.kind)) {
            instruction.device = Duration{std::max(2 * small(random), 0)};
        }
    }
    return program;
}

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

TEST_CASE("a program disturbs if any of its collectives does", "[undisturbed]") {
    Program program;
    CHECK_FALSE(disturbs(program));
    program.collectives = {{}, {}};
    program.collectives.back().interference = {1'000'000, 1'000'001};
    CHECK(disturbs(program));
}

}  // namespace
}  // namespace bucketwise
