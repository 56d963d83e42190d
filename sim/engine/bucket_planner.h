// The buckets of any strategy: make_plan(), and what depends on when gradients are ready. Horovod's
// thread finds them at certain moments; Megatron-LM's distributed optimizer gathers parameters in
// forward in the order that mirrors backward's.
#pragma once

#include <vector>

#include "sim/base/units.h"
#include "sim/engine/rank_progress.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/framework.h"
#include "sim/program/program.h"

namespace bucketwise {

// Backward without any bucket and without interference, on a rank that no class slows down.
struct BackwardMoments {
    RankProgress start;                      // of the closing part
    std::vector<GradientMoments> gradients;  // by gradient
    std::vector<Duration> starts;            // of each operation, on the device
    std::vector<Duration> ends;

    // The end of the last operation.
    [[nodiscard]] Duration end() const { return ends.empty() ? start.device : ends.back(); }
};

// `sync`: settings_for() the input. Throws InputError when the parts before could last longer than
// longest_duration, as plan_of() does.
BackwardMoments backward_moments(const StepInput& input, const SyncSettings& sync);

// Whether the plan depends on them.
bool depends_on_moments(const SyncSettings& sync);

// The buckets, and the moments at which Horovod's go out. `moments` may be anything where
// depends_on_moments() denies it.
FusedPlan fused_plan(const StepInput& input, const SyncSettings& sync,
                     const BackwardMoments& moments);

// Adds the gathers of each bucket's parameters, where the strategy has them.
void add_gathers(const StepInput& input, const SyncSettings& sync, const BackwardMoments& moments,
                 BucketPlan& plan);

// The same for those who plan once.
BucketPlan plan_of(const StepInput& input, const SyncSettings& sync);

}  // namespace bucketwise
