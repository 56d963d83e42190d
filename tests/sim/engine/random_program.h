// Random programs of arbitrary instructions, for comparing ways of running them. Small numbers,
// zeros among them, so that many moments coincide.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace bucketwise {

// One rank's instructions without their times.
inline Program random_outline(std::mt19937& random) {
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
            program.collectives.push_back({CollectiveKind::all_reduce,
                                           GradientsOf{},
                                           {1},
                                           Duration{between(0, 3) * between(0, 900)}});
            program.collectives.back().placing = Duration{between(0, 1) * between(0, 300)};
        } else if (kind == 1 && launched > 0) {
            instruction.kind = InstructionKind::wait;
            instruction.subject = between(0, launched - 1);
        } else {
            instruction.kind =
                between(0, 1) == 0 ? InstructionKind::backward : InstructionKind::copy;
            instruction.host_waits = !program.host_is_device && between(0, 9) == 0;
        }
        program.instructions.push_back(instruction);
    }
    return program;
}

// A third of the host's and the device's times are zero, the others up to `most` and twice that.
inline Program with_random_times(Program program, std::mt19937& random, int most = 400) {
    std::uniform_int_distribution<int> small(-most / 2, most);
    for (Instruction& instruction : program.instructions) {
        instruction.host = Duration{std::max(small(random), 0)};
        if (is_compute(instruction.kind)) {
            instruction.device = Duration{std::max(2 * small(random), 0)};
        }
    }
    return program;
}

// Launches some collectives ahead of their places, and some on a second stream, where some follow
// another one. Precondition: the host is not the device, and there are no side streams.
inline Program with_communication_beside(Program program, std::mt19937& random) {
    const auto between = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    std::vector<std::int32_t> in_their_places;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        Instruction& instruction = program.instructions[i];
        if (instruction.kind == InstructionKind::launch && between(0, 2) > 0) {
            const int after = between(-1, static_cast<int>(in_their_places.size()) - 1);
            instruction.launched_after =
                after < 0 ? before_all : in_their_places[static_cast<std::size_t>(after)];
            instruction.device = Duration{std::max(between(-200, 200), 0)};
        } else {
            in_their_places.push_back(static_cast<std::int32_t>(i));
        }
    }
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        Collective& collective = program.collectives[i];
        collective.stream = static_cast<CommunicationStream>(between(0, 1));
        if (i > 0 && between(0, 2) == 0) {
            collective.follows = between(0, static_cast<int>(i) - 1);
        }
    }
    return program;
}

// Some operations on up to three streams beside the compute stream, and some that come after
// others. A host that is the device has no such streams.
inline Program with_side_streams(Program program, std::mt19937& random) {
    const auto between = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    program.host_is_device = false;
    const int streams = between(1, 3);
    for (Instruction& instruction : program.instructions) {
        if (!is_compute(instruction.kind)) {
            continue;
        }
        if (between(0, 2) == 0) {
            instruction.order.stream = static_cast<std::uint8_t>(between(1, streams));
        }
        if (between(0, 1) == 0) {
            instruction.order.after = static_cast<std::uint8_t>(between(0, (2 << streams) - 1));
        }
    }
    return program;
}

}  // namespace bucketwise
