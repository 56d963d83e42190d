// Lists of caps: PyTorch's bucket_cap_mb_list, the k-th bucket closing at the k-th cap, the last
// one repeating. With one dtype a long enough list expresses any plan.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/plan.h"

namespace bucketwise {

// The shortest list with which `closing` gives these cuts, each cap the roundest that does; none
// where no list does (gradients of several dtypes, sparse ones or of no elements, or another
// closing than overshoot and strict).
std::optional<std::vector<Bytes>> cap_list_for(const GradientLine& line, const Cuts& cuts,
                                               Closing closing);

// The cuts that a list gives. Preconditions (asserted): the line is uniform, the closing is
// overshoot or strict, and there is a cap.
Cuts cuts_with(const GradientLine& line, const std::vector<Bytes>& list, Closing closing);

// Calls `visit` with the cuts of every list of `first_caps` and then one more cap that gives
// different ones, for as long as it returns true. Preconditions as above.
void visit_last_caps(const GradientLine& line, std::vector<Bytes> first_caps, Closing closing,
                     const std::function<bool(const Cuts&)>& visit);

}  // namespace bucketwise
