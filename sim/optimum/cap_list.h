// Lists of caps: PyTorch's bucket_cap_mb_list, the k-th bucket closing at the k-th cap, the last
// one repeating. With one dtype a long enough list expresses any plan but for gradients of no
// elements.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The shortest list with which `closing` gives these cuts, each cap the roundest that does; none
// where no list does (gradients of no elements, or another closing than overshoot and strict), and
// of a line that is not uniform.
std::optional<std::vector<Bytes>> cap_list_for(const GradientLine& line, const Cuts& cuts,
                                               Closing closing);

// The same of a plan of gradients of whatever dtypes; empty where no list does. The k-th cap is
// that of the k-th bucket of every dtype, so of several few plans have a list. `line` is of the
// policy's accumulators (of_accumulators), `plan` one of its plans, and `gives_it` says whether
// planning with a list gives the plan, its order included.
std::vector<Bytes> cap_list_for(const GradientLine& line, const std::vector<Gradient>& gradients,
                                const BucketPlan& plan, const PlanPolicy& policy,
                                const std::function<bool(const std::vector<Bytes>&)>& gives_it);

// The cuts that a list gives. Preconditions (asserted): the line is uniform, the closing is
// overshoot or strict, and there is a cap.
Cuts cuts_with(const GradientLine& line, const std::vector<Bytes>& list, Closing closing);

// Calls `visit` with the cuts of every list of `first_caps` and then one more cap that gives
// different ones, for as long as it returns true. Preconditions as above.
void visit_last_caps(const GradientLine& line, std::vector<Bytes> first_caps, Closing closing,
                     const std::function<bool(const Cuts&)>& visit);

}  // namespace bucketwise
