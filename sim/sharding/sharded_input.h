// What a sharded step is made of, and what it becomes.
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

// Between ranks that hold the same shards: hsdp's all-reduces.
struct Replicas {
    RankGroup group;
    LinkParameters link;
    bool operator==(const Replicas&) const = default;
};

// StepInput::group are the ranks that share parameters, StepInput::link what connects them.
struct ShardedInput {
    StepInput step;
    ShardingRequest request;
    Replicas replicas;  // one rank where there are none
    bool operator==(const ShardedInput&) const = default;
};

// The groups of its request.
inline ShardPlan make_shard_plan(const ShardedInput& input) {
    return make_shard_plan(input.step.workload, input.request, input.step.group.ranks);
}

// A micro-step, by its place; the last one's ends with the optimizer. Between two of them nothing
// is in flight.
enum class MicroStepPlace : std::uint8_t { only, first, middle, last };

struct ShardedProgram {
    Program program;
    ShardedMemory memory;
    // Of zero3, whose collectives move no group: by collective, the parameters that it gathers or
    // whose gradients it reduces, in the order in which they lie in it. Else empty.
    std::vector<std::vector<std::int32_t>> moved = {};
};

}  // namespace bucketwise
