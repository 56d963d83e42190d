// How sure a prediction is: what a choice may cost if the model is wrong, and between what single
// steps lie, under parameters drawn from what their fit leaves open and the measured variation.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/cap.h"
#include "sim/plan/strategy.h"
#include "sim/predict/model_error.h"
#include "sim/program/program.h"

namespace bucketwise {

struct StepInterval {
    Duration low{0};
    Duration high{0};
    bool operator==(const StepInterval&) const = default;
};

struct StepConfidence {
    DrawnRegret regret;
    // 95 % of single steps lie within: parameters and variation drawn. None: neither the link's fit
    // nor a measured variation says how wide that is.
    std::optional<StepInterval> interval = {};
    bool operator==(const StepConfidence&) const = default;
};

// By choice: ways to synchronise that differ in their bucket plans only. Regrets as
// drawn_regrets(); the interval of 200 draws from the seed in `input`: the same input gives the
// same answer. The accumulated micro-steps of one step vary alike. `measuring_error`: of the steps
// that the choice will be judged by, as a share. `standard`: as drawn_regrets(). Throws InputError
// when a drawn step could last longer than longest_duration.
std::vector<StepConfidence> confidence_of(const StepInput& input,
                                          const std::vector<SyncSettings>& choices,
                                          double tolerance, double measuring_error = 0,
                                          std::optional<std::size_t> standard = {});

// The row that is expected to cost least over the best in hindsight: the fastest, unless another
// one is better by more than a draw of lots would be. Rows without a confidence do not count.
std::size_t least_expected_regret(const std::vector<std::optional<StepConfidence>>& rows,
                                  std::size_t fastest);

// Of the rows that are expected to cost at most a thousandth more than `chosen`, which cannot be
// told from it, the one whose cap is shortest to type, the default before all others; of several,
// the one that is nearest to the default, by ratio. If that one has more than three digits, a cap
// with no more, where one is expected to cost at most half a percent more.
std::size_t shortest_to_type(const std::vector<std::optional<StepConfidence>>& rows,
                             const std::vector<Cap>& caps, std::size_t chosen);

}  // namespace bucketwise
