// The best plan of gradients of several dtypes, or sparse ones, by trying: one line of cuts for
// each accumulator, whose buckets go out as the policy closes them.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/base/units.h"
#include "sim/optimum/plan_search.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

struct AccumulatorSearch {
    PlanStep best;
    bool complete = false;  // no plan that the policy's rules can form is faster
    bool operator==(const AccumulatorSearch&) const = default;
};

// Of up to `most_to_exhaust` gradients every plan is tried, else hill climbing begins at `from`,
// which must be a plan of the policy, and ends when nothing is better, or when in each order of the
// last buckets more than `most_instructions` were simulated; orders that begin above the bound are
// left out once it is met. Of plans as fast, one of fewer buckets. Throws InputError for a step
// that could last longer than longest_duration.
AccumulatorSearch search_accumulators(const StepInput& input, const SyncSettings& sync,
                                      const PlanStep& from, Duration bound,
                                      std::size_t most_to_exhaust, std::int64_t most_instructions,
                                      const std::function<void(double)>& progress);

}  // namespace bucketwise
