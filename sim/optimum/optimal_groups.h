// The best grouping of blocks that a search finds within the memory, with groups of any sizes.
#pragma once

#include <optional>

#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct OptimalGroups {
    Evaluation evaluation;  // its request lists groups
    int evaluations = 0;    // simulated by the search
    bool operator==(const OptimalGroups&) const = default;
};

// Hill climbing (sim/optimum/cut_search.h) from the prediction's three fastest even groupings that
// fit, with the advised prefetching and resharding. Blocks of different lists do not share a group.
// Empty for a model without blocks, and where no even grouping fits. Precondition (asserted): fsdp
// or hsdp.
std::optional<OptimalGroups> optimal_groups(const Scenario& scenario, const ShardedInput& input,
                                            const Prediction& prediction, const Progress& progress);

}  // namespace bucketwise
