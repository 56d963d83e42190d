// What a rank does for each instruction of a sharded step: instructions name a group, a collective
// or an operation, and what is meant by copying follows from what is sent next.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/names.h"
#include "sim/program/program.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_step.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

enum class ShardedAct : std::uint8_t {
    forward,     // subject: operation
    backward,    // likewise
    gather_in,   // the own part of a group, cast, into its place among all
    gather,      // subject: collective
    gather_out,  // what was gathered, parameter by parameter
    reduce_in,   // gradients, cast and divided, rank by rank
    reduce,      // subject: collective
    place,       // what was reduced, cast, where the optimizer finds it, or added there
    wait,        // subject: collective
    optimizer
};

template <>
inline constexpr auto names_of<ShardedAct> = names("forward", "backward", "gather in", "gather",
                                                   "gather out", "reduce in", "reduce", "place",
                                                   "wait", "optimizer");

struct ShardedCall {
    ShardedAct act = ShardedAct::forward;
    std::int32_t subject = 0;  // where none is named: the group
    std::int32_t group = -1;   // whose parameters or gradients it moves
    std::int64_t micro_step = 0;
    bool adds = false;  // of place: to what earlier micro-steps left
    // Of reduce: what it brings is where the optimizer finds it, and nothing places it later.
    bool is_placed = false;
    bool operator==(const ShardedCall&) const = default;
};

// What a rank executes, and the groups it is about.
struct ShardedReplay {
    ShardingRequest request;
    ShardPlan plan = {};
    Program program = {};  // whose host is the device
    std::vector<ShardedCall> calls = {};
    bool operator==(const ShardedReplay&) const = default;
};

// Parallel to the instructions. Throws InputError where a group is reduced in parts, as part of its
// module runs apart from the rest.
std::vector<ShardedCall> sharded_calls(const Program& program, const ShardingRequest& request);

// `input`: of a step whose host is the device, on more than one rank.
ShardedReplay sharded_replay(const ShardedInput& input);

// What is computed alone: no collective, and no copy for one.
Program computing_of(const Program& program);

}  // namespace bucketwise
