// Input and program of a sharded step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/program/program.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

struct ShardedInput {
    StepInput step;
    ShardingRequest request;
    bool operator==(const ShardedInput&) const = default;
};

// The groups of its request.
inline ShardPlan make_shard_plan(const ShardedInput& input) {
    return make_shard_plan(input.step.workload, input.request, input.step.group.ranks);
}

// The place of a micro-step; the last one ends with the optimizer. Nothing is in flight between two
// micro-steps.
enum class MicroStepPlace : std::uint8_t { only, first, middle, last };

enum class ShardedTensor : std::uint8_t {
    parameters,         // the rank-local shard; a larger one after forward that reshards to fewer
                        // ranks
    gathered,           // buffers that all-gathers fill
    unsharded,          // gathered parameters
    gradients,          // of the unsharded parameters
    reduced,            // buffers that reduce-scatters read
    sharded_gradients,  // results of reduce-scatters, for the optimizer
};

template <>
inline constexpr auto names_of<ShardedTensor> = names("parameters", "gathered", "unsharded",
                                                      "gradients", "reduced", "sharded_gradients");

// A rank's memory of parameters and gradients during a sharded step, in the order of the host's
// requests: a caching allocator follows that order, whatever the device has run.
struct ShardedMemory {
    using Sizes = std::array<Bytes, every<ShardedTensor>.size()>;
    Sizes now = {};
    Sizes at_peak = {};
    Bytes peak = {};  // of the sum
    bool operator==(const ShardedMemory&) const = default;

    void hold(ShardedTensor tensor, Bytes size) {
        now[static_cast<std::size_t>(tensor)] += size;
        const Bytes sum = total(now);
        if (sum > peak) {
            peak = sum;
            at_peak = now;
        }
    }
    void release(ShardedTensor tensor, Bytes size) {
        Bytes& held = now[static_cast<std::size_t>(tensor)];
        held = held - size;
    }
    // Appends a later part of the step, which began with this memory.
    void go_on_with(const ShardedMemory& other) {
        if (other.peak > peak) {
            peak = other.peak;
            at_peak = other.at_peak;
        }
        now = other.now;
    }
    [[nodiscard]] Bytes of(ShardedTensor tensor) const {
        return at_peak[static_cast<std::size_t>(tensor)];
    }

  private:
    static Bytes total(const Sizes& sizes) {
        Bytes sum;
        for (const Bytes size : sizes) {
            sum += size;
        }
        return sum;
    }
};

struct ShardedProgram {
    Program program;
    ShardedMemory memory;
    // Parameters that are gathered, and whose gradients are reduced, together, in the order of the
    // message: a group's; in zero3, those of each collective.
    std::vector<std::vector<std::int32_t>> moves = {};
    // Whether a move's buffers are in use only from its collective's begin until its result is in
    // place, so that all moves can have the same memory.
    bool moves_share_buffers = false;
};

}  // namespace bucketwise
