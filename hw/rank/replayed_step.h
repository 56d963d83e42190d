// A step of a scenario as real ranks replay it: the program that the engine executes, and the plan
// that its instructions refer to.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_step.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

struct ReplayedStep {
    Program program = {};
    // Gradients that are all-reduced.
    SyncSettings sync = {};
    BucketPlan plan = {};
    // Parameters that are sharded: empty where none are.
    ShardingRequest request = {};
    ShardPlan shards = {};
    // As ShardedProgram has them.
    std::vector<std::vector<std::int32_t>> moves = {};
    bool moves_share_buffers = false;
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

// Plans that depend on when gradients are ready need a simulation, which ranks leave to others:
// plan_of() of sim/engine/bucket_planner.h.
using MakePlan = BucketPlan (*)(const StepInput& input, const SyncSettings& sync);

// `input`: replay_input() of the scenario.
ReplayedStep replayed_step(const Scenario& scenario, const StepInput& input, Cap cap,
                           MakePlan make_plan);

// `input`: at least two ranks share parameters.
ReplayedStep sharded_replay(const ShardedInput& input);

// The computing of a step alone: no collective, and no copy.
ReplayedStep computing_of(ReplayedStep computing);

}  // namespace bucketwise
