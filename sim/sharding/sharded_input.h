// Input and program of a sharded step.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/link/collective.h"
#include "sim/link/link.h"
#include "sim/program/program.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_memory.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

// Ranks with the same shards, for hsdp's all-reduces.
struct Replicas {
    RankGroup group;
    LinkParameters link;
    bool operator==(const Replicas&) const = default;
};

// StepInput::group has the ranks that share parameters, StepInput::link their connection.
struct ShardedInput {
    StepInput step;
    ShardingRequest request;
    Replicas replicas;  // one rank: none
    bool operator==(const ShardedInput&) const = default;
};

// The groups of its request.
inline ShardPlan make_shard_plan(const ShardedInput& input) {
    return make_shard_plan(input.step.workload, input.request, input.step.group.ranks);
}

// The place of a micro-step; the last one ends with the optimizer. Nothing is in flight between two
// micro-steps.
enum class MicroStepPlace : std::uint8_t { only, first, middle, last };

struct ShardedProgram {
    Program program;
    ShardedMemory memory;
    // zero3's collectives move no group. By collective: the parameters that it gathers, or whose
    // gradients it reduces, in the order of the message. Empty for fsdp and hsdp.
    std::vector<std::vector<std::int32_t>> moved = {};
};

}  // namespace bucketwise
