// predict_sharded(): step and memory of a sharded scenario at every grouping, prefetch and reshard
// setting that matters; the best setting, and those that no other beats in both.
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
    std::size_t groups = 0;  // including the root's
    Bytes largest_gather;    // of one all-gather
    StepTimes times;
    Duration communication{0};  // all collectives, each alone
    Duration exposed{0};        // the saving if they were free
    MemoryNeed memory;
    ShardedMemory sharded;  // the part of parameters and gradients
    bool operator==(const ShardedEvaluation&) const = default;

    [[nodiscard]] Duration step() const { return times.step(); }
    [[nodiscard]] Bytes peak() const { return memory.most(); }
};

struct ShardedPrediction {
    std::vector<ShardedEvaluation> sweep;  // all with different results
    // The least memory among fitting settings within plateau_tolerance of the fastest.
    std::size_t best = 0;
    bool best_fits = true;              // false: no setting fits, and `best` has the least memory
    ShardedEvaluation configured;       // the scenario's own
    std::vector<std::size_t> frontier;  // by rising memory; no row is faster with less
    Binding binding;                    // of the best
    std::vector<std::string> notes;

    [[nodiscard]] const ShardedEvaluation& advised() const { return sweep[best]; }
};

// Throws InputError if a step could last longer than longest_duration.
ShardedEvaluation evaluate_sharded(const Scenario& scenario, const ShardedInput& input);

ShardedPrediction predict_sharded(const Scenario& scenario, const ShardedInput& input,
                                  const Progress& progress);

// The whole step's program on the slowest rank, and its run from the start of a settled step.
Program sharded_program(const ShardedInput& input);
Simulation sharded_simulation(const ShardedInput& input, const Program& program);

}  // namespace bucketwise
