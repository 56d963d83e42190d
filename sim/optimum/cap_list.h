// Lists of caps: PyTorch's bucket_cap_mb_list. The k-th bucket of each dtype closes at the k-th
// cap, and the last cap repeats.
#pragma once

#include <functional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

inline bool closes_at_caps(Closing closing) {
    return closing == Closing::overshoot || closing == Closing::strict;
}

// The shortest list that gives the plan, each cap the roundest that does; empty where no list does.
// With one dtype a long enough list gives any plan without gradients of no elements; with several
// dtypes, few plans have a list. `line` is of the policy's accumulators (of_accumulators), `plan`
// one of its plans, and `gives_it` says whether planning with a list gives the plan and its order.
std::vector<Bytes> cap_list_for(const GradientLine& line, const std::vector<Gradient>& gradients,
                                const BucketPlan& plan, Closing closing,
                                const std::function<bool(const std::vector<Bytes>&)>& gives_it);

}  // namespace bucketwise
