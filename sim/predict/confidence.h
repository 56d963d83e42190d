// How sure a prediction is: the same step under parameters drawn from what their fit leaves open,
// and under the variation that was measured from step to step.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

struct StepConfidence {
    Duration low{0};  // 95 % of single steps lie between these: parameters and variation drawn
    Duration high{0};
    // How much this choice costs over the best of all choices, parameters drawn, as a share.
    double expected_regret = 0;
    // In 19 of 20 draws of the parameters this choice is slower than the best by more than the
    // tolerance asked for.
    bool told_from_best = false;
    bool operator==(const StepConfidence&) const = default;
};

// Whether there is anything to draw: standard errors in the link, or a measured variation.
bool is_uncertain(const StepInput& input);

// By choice: ways to synchronise that differ in their bucket plans only. They are compared with one
// another draw by draw, so that what all share cancels. 200 draws from the seed in `input`: the
// same input gives the same answer.
// Parameters are drawn from normal distributions, those of a segment jointly, cut off at what they
// may be (latency 0, slowdown 1); a bandwidth's logarithm is, so that it stays above zero. The
// accumulated micro-steps of one step vary alike. Throws InputError when a drawn step could last
// longer than longest_duration.
std::vector<StepConfidence> confidence_of(const StepInput& input,
                                          const std::vector<SyncSettings>& choices,
                                          double tolerance);

// The row that is expected to cost least over the best in hindsight: the fastest, unless another
// one is better by more than a draw of lots would be. Rows without a confidence do not count.
std::size_t least_expected_regret(const std::vector<std::optional<StepConfidence>>& rows,
                                  std::size_t fastest);

}  // namespace bucketwise
