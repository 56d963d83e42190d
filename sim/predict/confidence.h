// The confidence of a prediction: the cost of a choice if the model is wrong, and the interval of
// single steps, with parameters drawn from their fit's errors and from the measured variation.
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
    // Holds 95 % of single steps, with parameters and variation drawn. Empty without errors of a
    // fit and without a measured variation.
    std::optional<StepInterval> interval = {};
    bool operator==(const StepConfidence&) const = default;
};

// By choice; choices differ only in their bucket plans. Regrets and `standard` are those of
// drawn_regrets(); intervals come from 200 draws from the seed in `input`, so the same input gives
// the same answer. The accumulated micro-steps of a step vary alike. `measuring_error` is that of
// the steps that will judge the choice, as a share. Throws InputError if a drawn step could last
// longer than longest_duration.
std::vector<StepConfidence> confidence_of(const StepInput& input,
                                          const std::vector<SyncSettings>& choices,
                                          double tolerance, double measuring_error = 0,
                                          std::optional<std::size_t> standard = {});

// The row with the least expected regret: the fastest, unless another is better by more than the
// noise of the draws. Rows without a confidence do not count.
std::size_t least_expected_regret(const std::vector<std::optional<StepConfidence>>& rows,
                                  std::size_t fastest);

// The row whose cap is shortest to type, the default before all others, among rows with an expected
// regret at most a thousandth above that of `chosen`; of several the nearest to the default, by
// ratio. If that cap has more than three digits, a cap with at most three, if one has an expected
// regret at most half a percent higher.
std::size_t shortest_to_type(const std::vector<std::optional<StepConfidence>>& rows,
                             const std::vector<Cap>& caps, std::size_t chosen);

}  // namespace bucketwise
