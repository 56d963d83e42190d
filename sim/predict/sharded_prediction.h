// predict_sharded(): the step and the memory of a scenario that shards, at every grouping, prefetch
// and reshard setting that matters; the best of them, and those that no other beats in both.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/memory_need.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharded_step.h"

namespace bucketwise {

// One setting, simulated.
struct ShardedEvaluation {
    ShardingRequest request;
    std::size_t groups = 0;  // the root's among them
    Bytes largest_gather;    // of one all-gather
    StepTimes times;
    Duration communication{0};  // all collectives, each as long as it takes alone
    Duration exposed{0};        // what the step would lose if they were free
    MemoryNeed memory;
    ShardedMemory sharded;  // of it: parameters and gradients
    bool operator==(const ShardedEvaluation&) const = default;

    [[nodiscard]] Duration step() const { return times.step(); }
    [[nodiscard]] Bytes peak() const { return memory.most(); }
};

struct ShardedPrediction {
    std::vector<ShardedEvaluation> sweep;  // as settings are listed; no two alike in all they give
    // Of those that fit, within plateau_tolerance of the fastest: the one that holds least.
    std::size_t best = 0;
    bool best_fits = true;              // no setting fits: the one that holds least of all
    ShardedEvaluation configured;       // the scenario's own
    std::vector<std::size_t> frontier;  // by rising memory: none is faster with as little
    Binding binding;                    // of the best
    std::vector<std::string> notes;

    [[nodiscard]] const ShardedEvaluation& advised() const { return sweep[best]; }
};

// Throws InputError when a step could last longer than longest_duration.
ShardedEvaluation evaluate_sharded(const Scenario& scenario, const ShardedInput& input);

ShardedPrediction predict_sharded(const Scenario& scenario, const ShardedInput& input,
                                  const Progress& progress);

// The whole step's program on the slowest rank, and it run from where a settled step begins.
Program sharded_program(const ShardedInput& input);
Simulation sharded_simulation(const ShardedInput& input, const Program& program);

}  // namespace bucketwise
