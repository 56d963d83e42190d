// A step of a scenario as real ranks replay it: the program that the engine executes and, where
// parameters are sharded, the meaning of each instruction to a rank. Instructions name a group, a
// collective or an operation; the purpose of a copy follows from what is sent next.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/names.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_step.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

enum class ShardedAct : std::uint8_t {
    forward,     // subject: operation
    backward,    // subject: operation
    gather_in,   // copies the own parts of parameters, cast, into their place among all
    gather,      // subject: collective
    gather_out,  // copies gathered parameters out, one by one
    reduce_in,   // copies gradients in, cast and divided, rank by rank
    reduce,      // subject: collective
    all_reduce,  // subject: collective; the own reduced part, between replicas
    place,       // copies the reduced part, cast, where the optimizer finds it
    wait,        // subject: collective
    optimizer
};

template <>
inline constexpr auto names_of<ShardedAct> = names("forward", "backward", "gather in", "gather",
                                                   "gather out", "reduce in", "reduce",
                                                   "all-reduce", "place", "wait", "optimizer");

// The use of a reduced part, once no other call works on it.
enum class Placing : std::uint8_t {
    none,  // another call follows
    sets,  // it is the gradient
    adds,  // it is added to earlier micro-steps' gradient
    keeps  // it is added up until the micro-step that all-reduces
};

template <>
inline constexpr auto names_of<Placing> = names("", "placed", "added", "kept");

struct ShardedCall {
    ShardedAct act = ShardedAct::forward;
    std::int32_t subject = 0;
    std::int32_t move = -1;  // of ReplayedStep::moves; -1: the call computes
    std::int64_t micro_step = 0;
    bool copies_in = false;           // gather and reduce: gathering or reducing in is part of it
    bool copies_out = false;          // gather: gathering out is part of it
    bool among_fewer = false;         // gather_in, gather and gather_out
    bool takes_kept = false;          // all_reduce: adds what earlier micro-steps kept
    Placing placing = Placing::none;  // reduce, all_reduce and place
    bool operator==(const ShardedCall&) const = default;
};

struct ReplayedStep {
    Program program = {};
    // Gradients that are all-reduced.
    SyncSettings sync = {};
    BucketPlan plan = {};
    // Parameters that are sharded: empty where none are.
    ShardingRequest request = {};
    ShardPlan shards = {};
    std::vector<ShardedCall> calls = {};  // parallel to the instructions
    // The parameters that are gathered, and whose gradients are reduced, together: the plan's
    // groups; in zero3, the parameters of each collective.
    std::vector<std::vector<std::int32_t>> moves = {};
};

// Prepares a scenario for real ranks: every copy and the optimizer are in its programs, also where
// a prediction would have no price for them. Its times mean nothing.
StepInput replay_input(const Scenario& scenario);

// The same for a scenario that shards, with another setting; `on_host`: ranks compute without a
// device.
ShardedInput sharded_replay_input(const Scenario& scenario, const ShardingRequest& setting,
                                  bool on_host);

// The settings of a step without synchronisation.
SyncSettings without_synchronisation();

// `input`: replay_input() of the scenario.
ReplayedStep replayed_step(const Scenario& scenario, const StepInput& input, Cap cap);

// `program` was built for `plan`. Throws InputError where a group is reduced in parts, as part of
// its module runs apart from the rest.
ReplayedStep sharded_replay(ShardedProgram program, ShardPlan plan, const ShardingRequest& request);

// `input`: at least two ranks share parameters.
ReplayedStep sharded_replay(const ShardedInput& input);

// The computing of a sharded step alone: no collective, and no copy for one.
ReplayedStep computing_of(const ReplayedStep& sharded);

}  // namespace bucketwise
