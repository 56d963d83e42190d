// The confidence of a prediction: the cost of a choice if the model is wrong, and the interval of
// single steps, with parameters drawn from their fit's errors and from the measured variation.
//
// A simulated minimum is a minimum of the model. Its true cost is the time by which the chosen plan
// is slower than the best plan if readiness, link, interference and the cost of a collective differ
// from the model. All are drawn together, with the same draw for every choice, so that common
// errors cancel.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/cap.h"
#include "sim/predict/overlap.h"
#include "sim/predict/planned_setting.h"
#include "sim/program/program.h"

namespace bucketwise {

// --- regret ---

// Standard errors, as shares except `collective_us`. Sources: docs/decisions/model_error.md.
struct ModelError {
    double computing = 0.03;     // of all of backward
    double readiness = 0.08;     // how much later operations take longer, earlier ones shorter
    double link_fixed = 0.1;     // the time of a collective of few bytes
    double link_bytes = 0.03;    // the additional time of its bytes
    double interference = 0.15;  // of each factor beyond 1, where the link states no error
    double collective_us = 0;    // computing time lost to each collective, never negative; not
                                 // beside assumed interference, which has it
    // The unexplained error of the step with one plan alone. Plans whose caps are a factor of two
    // apart share half of it, and so on. For a step without accumulation.
    double plan = 0.015;
    double measuring = 0;  // of each measured step that will judge the choice
    bool operator==(const ModelError&) const = default;
};

// The declared error of this input. A fitted link adds its own errors, a preset's errors span its
// ends, and on a GPU each collective costs computing time. Assumed interference is drawn between
// its ends (sim/predict/overlap.h), with errors of its own.
ModelError model_error_of(const StepInput& input);

struct DrawnRegret {
    double expected = 0;  // mean over draws of the excess over the best choice, as a share
    double most = 0;      // 95 % of draws are not above it
    // In 95 % of draws the choice is slower than the best by more than the tolerance.
    bool told_from_best = false;
    // The saving over the standard choice in 95 % of draws, if there is one.
    std::optional<DrawnShare> saved = {};
    bool operator==(const DrawnRegret&) const = default;
};

// By choice; choices differ only in their bucket plans, or in how they shard. 96 draws (24 if a
// draw needs several simulated steps, fewer for long programs), each second one the opposite of the
// one before, which makes means as good as those of many more draws. They come from the seed in
// `input`: the same input gives the same answer. `standard` is the choice to compare with. Throws
// InputError if a step could last longer than longest_duration.
std::vector<DrawnRegret> drawn_regrets(const StepInput& input, const std::vector<Setting>& choices,
                                       const ModelError& error, double tolerance,
                                       std::optional<std::size_t> standard = {});

// --- confidence ---

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

// By choice, as drawn_regrets() takes them. Regrets and `standard` are those of
// drawn_regrets(); intervals come from 200 draws from the seed in `input`, so the same input gives
// the same answer. The accumulated micro-steps of a step vary alike. `measuring_error` is that of
// the steps that will judge the choice, as a share. Throws InputError if a drawn step could last
// longer than longest_duration.
std::vector<StepConfidence> confidence_of(const StepInput& input,
                                          const std::vector<Setting>& choices, double tolerance,
                                          double measuring_error = 0,
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
