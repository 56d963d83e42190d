// The optimal bucket plan: of all ways to cut the line of gradients into buckets, one with the
// shortest step; a bound that no plan can beat; and how far from it plans are that a framework can
// express.
#pragma once

#include <string>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"

namespace bucketwise {

enum class PlanKind : std::uint8_t {
    framework_default,  // DDP's 25 MiB, the first bucket 1 MiB
    configured,         // the scenario's own caps
    uniform,            // the best single cap
    greedy_merge,       // MG-WFBP's
    list_of_two,        // the best list of two caps
    cap_list            // the shortest list that gives the optimum
};

template <>
inline constexpr auto names_of<PlanKind> = names("default", "configured", "uniform", "greedy_merge",
                                                 "list_of_two", "cap_list");

// A plan that is not the optimum, or one way to ask for it.
struct ExpressiblePlan {
    PlanKind kind = PlanKind::framework_default;
    std::vector<Bytes> caps;  // to be typed: one, or a list; empty: nothing is
    std::size_t buckets = 0;
    Duration step{0};
    bool operator==(const ExpressiblePlan&) const = default;
};

struct OptimalPlan {
    BucketPlan plan;        // in launch order
    Evaluation evaluation;  // of it
    Duration bound{0};      // no plan's step is shorter
    bool proved = false;    // the step is the shortest that there is
    // Caps of DDP's list that give this plan; empty: no list does.
    std::vector<Bytes> cap_list;
    std::vector<ExpressiblePlan> others;  // by kind
    std::vector<std::string> notes;
    bool operator==(const OptimalPlan&) const = default;
};

// By how much a step is longer than the optimum, as a share of it.
double gap_to(const OptimalPlan& optimum, Duration step);

// More take too long: any two of them may be where a bucket begins and ends.
constexpr std::size_t most_gradients_of_a_plan = 2000;
constexpr std::size_t most_gradients_with_interference = 800;

// With gradients of one dtype, none sparse, without interference, and if buckets go out in the
// order of their gradients, the optimum is exact (sim/optimum/max_plus_plan.h) and the bound is its
// step; with hundreds of gradients and costs that round differently with every size, exact to a
// millionth. Otherwise it is exact where `proved` says so, for up to 15 gradients always, and else
// the best found. Of several dtypes, each of which has its own open bucket, it is over all places
// where each of them may close, in the order in which the policy sends what is closed. No plan of
// `others` is faster than the bound or than the optimum (asserted). Throws InputError for what has
// no plan to choose (a strategy without communication, too many gradients, an order that is no
// line), and for a step that could last longer than longest_duration.
OptimalPlan optimal_plan(const StepInput& input, const SyncRequest& request,
                         const Progress& progress);

}  // namespace bucketwise
