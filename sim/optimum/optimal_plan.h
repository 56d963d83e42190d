// The optimal bucket plan: the ways to form buckets with the shortest step, a bound that no plan
// can beat, and the gaps of plans that a framework can express.
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
    list_of_two,        // the best list of two caps that was tried
    cap_list            // the shortest list that gives the optimum
};

template <>
inline constexpr auto names_of<PlanKind> = names("default", "configured", "uniform", "greedy_merge",
                                                 "list_of_two", "cap_list");

// A plan beside the optimum, or one way to ask for the optimum.
struct ExpressiblePlan {
    PlanKind kind = PlanKind::framework_default;
    std::vector<Bytes> caps;  // to type: one, a list, or nothing
    std::size_t buckets = 0;
    Duration step{0};
    bool operator==(const ExpressiblePlan&) const = default;
};

struct OptimalPlan {
    BucketPlan plan;                      // in launch order
    Evaluation evaluation;                // of it
    Duration bound{0};                    // no plan's step is shorter
    bool proved = false;                  // no plan is faster
    std::vector<Bytes> cap_list;          // DDP's list that gives this plan; empty: no list does
    std::vector<ExpressiblePlan> others;  // by kind
    std::vector<std::string> notes;
    bool operator==(const OptimalPlan&) const = default;
};

// How much longer a step is than the optimum, as a share of it.
double gap_to(const OptimalPlan& optimum, Duration step);

// More gradients take too long: any two of them can be the ends of a bucket.
constexpr std::size_t most_gradients_of_a_plan = 2000;
constexpr std::size_t most_gradients_with_interference = 800;

// Exact for gradients of one dtype, not sparse, without interference, whose buckets go out in the
// order of their gradients (sim/optimum/max_plus_plan.h); with hundreds of gradients and costs that
// round differently at every size, exact to a millionth. Up to 15 gradients every plan is tried.
// Otherwise the plan is the best that hill climbing finds (sim/optimum/cut_search.h), and `proved`
// if it meets the bound. Each of several dtypes has its own open bucket; plans then differ in the
// places where each of these may close, and buckets go out in the policy's order.
//
// No plan of `others` is faster than the bound or the optimum (asserted). Throws InputError where
// there is no plan to choose (a strategy without communication, too many gradients, an order that
// is no line), and for a step that could last longer than longest_duration.
OptimalPlan optimal_plan(const StepInput& input, const SyncRequest& request,
                         const Progress& progress);

}  // namespace bucketwise
