// The optimal plan as people and programs read it.
#pragma once

#include <string>

#include "sim/base/json.h"
#include "sim/optimum/optimal_plan.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The optimum, the bound, and a table of other plans with their gaps to the optimum.
std::string optimal_text(const Scenario& scenario, const OptimalPlan& optimum);

// Keys: step_ms, forward_ms, backward_ms, bucket_bytes in launch order, bound_ms, proved,
// bucket_cap_mib_list (null where no list gives the plan), gaps: a list of plan, step_ms, gap (a
// share of the optimum's step), buckets, and bucket_cap_mib or bucket_cap_mib_list where one can be
// typed; notes.
Json to_json(const OptimalPlan& optimum);

}  // namespace bucketwise
