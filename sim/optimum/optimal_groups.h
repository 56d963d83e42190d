// The best grouping of blocks that a search finds, groups of different sizes allowed, within so
// much memory.
#pragma once

#include <optional>

#include "sim/predict/prediction.h"
#include "sim/predict/sharded_prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct OptimalGroups {
    ShardedEvaluation evaluation;  // its request lists groups
    int evaluations = 0;           // simulated on the way
    bool operator==(const OptimalGroups&) const = default;
};

// Starts at each even grouping of the prediction that fits and is among the best, and moves, adds
// and takes away single boundaries for as long as that makes the step shorter, with the advised
// prefetching and resharding. Blocks of different lists do not share a group. None: the model has
// no blocks, or no even grouping fits. Precondition (asserted): fsdp or hsdp.
std::optional<OptimalGroups> optimal_groups(const Scenario& scenario, const ShardedInput& input,
                                            const ShardedPrediction& prediction,
                                            const Progress& progress);

}  // namespace bucketwise
