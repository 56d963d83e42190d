// Bucket plans by trying: for steps whose moments are no (max, +) system, because computing and
// all-reduces slow each other or because buckets may go out in another order than that of their
// gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/optimum/max_plus_plan.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

struct PlanStep {
    BucketPlan plan;
    Duration step{0};
    bool operator==(const PlanStep&) const = default;
};

// By what plans are compared: the faster first, of those as fast the one of fewer buckets.
using Rank = std::pair<Duration, std::size_t>;
inline Rank rank_of(const CutStep& plan) {
    return {plan.step, plan.cuts.size()};
}
inline Rank rank_of(const PlanStep& plan) {
    return {plan.step, plan.plan.buckets.size()};
}

// Steps of cuts, by the engine.
class SimulatedCuts {
  public:
    // Throws InputError for a step that could last longer than longest_duration.
    SimulatedCuts(const StepInput& input, const SyncSettings& sync, const GradientLine& line);
    SimulatedCuts(const SimulatedCuts&) = delete;
    SimulatedCuts& operator=(const SimulatedCuts&) = delete;

    Duration step(const Cuts& cuts) { return step(line_.plan(cuts)); }
    Duration step(const BucketPlan& plan);

    // What is certain of a step that begins with these buckets. As nothing computes after the last
    // of them here, the rest of their all-reduces is undisturbed. Precondition: cuts keep order.
    LaunchedBuckets launched(const Cuts& cuts);

    // Where the closing part begins.
    [[nodiscard]] const RankProgress& start() const { return step_.progress().front(); }
    // StepToClose::something_may_wait(), with one bucket for each gradient.
    [[nodiscard]] bool something_may_wait() const;
    [[nodiscard]] std::int64_t simulated() const { return simulated_; }

  private:
    const StepInput& input_;
    const SyncSettings& sync_;
    const GradientLine& line_;
    StepBeforeClosing before_;
    StepToClose step_;
    Program program_;
    std::int64_t simulated_ = 0;  // instructions
};

// Hill climbing: the first change that makes the step shorter is kept, until none does or more than
// `most_instructions` were simulated. Changes are: no cut, another cut, a cut moved by 1, 2, 4, ...
// `progress` is told the share of instructions that were simulated, here and below.
CutStep locally_improved(const GradientLine& line, SimulatedCuts& steps, CutStep from,
                         std::int64_t most_instructions,
                         const std::function<void(double)>& progress);

struct ExhaustiveSearch {
    CutStep best;
    bool complete = false;  // nothing is faster
    bool operator==(const ExhaustiveSearch&) const = default;
};

// Branch and bound, cut by cut from the beginning, for cuts faster than `from`. `planner` bounds
// what follows the first buckets, by a step in which nothing slows anything; null: no bound is
// known before the last cut.
ExhaustiveSearch exhaustive_search(const GradientLine& line, SimulatedCuts& steps,
                                   MaxPlusPlanner* planner, CutStep from,
                                   std::int64_t most_instructions,
                                   const std::function<void(double)>& progress);

// MG-WFBP's greedy merge: Shi, Chu, Li 2019, "MG-WFBP: Efficient data communication for distributed
// synchronous SGD algorithms", Algorithm 1.
//
// Gradients one after another, each alone: one is merged into the next where the next is ready
// before the first one's all-reduce could have got past its start-up time, and when all-reduces
// start is reckoned anew after each merge. `ready` says when a bucket that ends at a cut can go
// out, `cost` what the all-reduce of the gradients between two cuts takes.
//
// Their all-reduce of n bytes takes a + b n, and a is what merging two saves. Other costs have no
// single a, so what merging these two saves, cost(x) + cost(y) - cost(x + y), stands for it.
Cuts greedy_merge(const GradientLine& line, const std::function<Duration(std::size_t cut)>& ready,
                  const std::function<Duration(std::size_t begin, std::size_t end)>& cost);

}  // namespace bucketwise
