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
    gather_in,   // the own parts of parameters, cast, into their place among all
    gather,      // subject: collective
    gather_out,  // what was gathered, parameter by parameter
    reduce_in,   // gradients, cast and divided, rank by rank
    reduce,      // subject: collective
    all_reduce,  // likewise; the own part of what was reduced, between replicas
    place,       // what was reduced, cast, where the optimizer finds it
    wait,        // subject: collective
    optimizer
};

template <>
inline constexpr auto names_of<ShardedAct> = names("forward", "backward", "gather in", "gather",
                                                   "gather out", "reduce in", "reduce",
                                                   "all-reduce", "place", "wait", "optimizer");

// What becomes of what was reduced, once no other call does anything with it.
enum class Placing : std::uint8_t {
    none,  // another call does
    sets,  // it is the gradient
    adds,  // to what earlier micro-steps left
    keeps  // for the micro-step that all-reduces, added to what is kept there
};

template <>
inline constexpr auto names_of<Placing> = names("", "placed", "added", "kept");

struct ShardedCall {
    ShardedAct act = ShardedAct::forward;
    std::int32_t subject = 0;
    std::int32_t move = -1;  // of ShardedReplay::moves; none: of computing
    std::int64_t micro_step = 0;
    // Of gather and reduce: gathering or reducing in is part of it; and of gather: gathering out.
    bool copies_in = false;
    bool copies_out = false;
    bool among_fewer = false;         // of gathering in, gather and gathering out
    bool takes_kept = false;          // of all_reduce: what earlier micro-steps kept comes to it
    Placing placing = Placing::none;  // of reduce, all_reduce and place
    bool operator==(const ShardedCall&) const = default;
};

// What a rank executes, and the parameters that it is about.
struct ShardedReplay {
    ShardingRequest request;
    ShardPlan plan = {};
    Program program = {};
    std::vector<ShardedCall> calls = {};  // parallel to the instructions
    // What is gathered, and whose gradients are reduced, together: the plan's groups or, of zero3,
    // what each collective moves.
    std::vector<std::vector<std::int32_t>> moves = {};
    bool operator==(const ShardedReplay&) const = default;
};

// `program` was built for `plan`. Throws InputError where a group is reduced in parts, as part of
// its module runs apart from the rest.
ShardedReplay sharded_replay(ShardedProgram program, ShardPlan plan,
                             const ShardingRequest& request);

// `input`: on more than one rank that share parameters.
ShardedReplay sharded_replay(const ShardedInput& input);

// What is computed alone: no collective, and no copy for one.
ShardedReplay computing_of(const ShardedReplay& replay);

}  // namespace bucketwise
