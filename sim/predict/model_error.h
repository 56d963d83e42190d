// How wrong a prediction may be: the declared error of the model, and what a choice then costs.
//
// A simulated minimum is a minimum of the model. What it costs in truth is how much slower the
// chosen plan is than the best one when readiness, link, interference and what a collective costs
// are not quite what the model takes them for. All are drawn together, the same draw for every
// choice, so that what all choices share cancels.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

// Standard errors, as shares but for `collective_us`. Where each is from:
// docs/decisions/model_error.md.
struct ModelError {
    double computing = 0.03;     // of all of backward
    double readiness = 0.08;     // how much later operations take longer, earlier ones shorter
    double link_fixed = 0.1;     // what a collective of few bytes takes
    double link_bytes = 0.03;    // what its bytes take besides
    double interference = 0.15;  // of each factor beyond 1, where the link says no error
    double collective_us = 0;    // of computing that each collective costs, never less than none
    // Of the step with one plan and not with others: what no parameter explains. Plans whose caps
    // are a factor of two apart share half of it, and so on. Of a step without accumulation.
    double plan = 0.015;
    double measuring = 0;  // of a step that the choice will be judged by, each on its own
    bool operator==(const ModelError&) const = default;
};

// What is declared of this input: a link that was fitted has its own errors besides, a preset's are
// as wide as its ends lie apart, and on a GPU each collective costs computing something.
ModelError model_error_of(const StepInput& input);

// Between what 95 % of draws lie, as a share.
struct DrawnShare {
    double low = 0;
    double high = 0;
    bool operator==(const DrawnShare&) const = default;
};

// Of one choice.
struct DrawnRegret {
    double expected = 0;  // over the best of all choices, as a share: the mean over draws
    double most = 0;      // 95 % of draws are not above it
    // In 95 % of draws the choice is slower than the best by more than the tolerance asked for.
    bool told_from_best = false;
    // What it saves of the step with the standard choice; none: there is none.
    std::optional<DrawnShare> saved = {};
    bool operator==(const DrawnRegret&) const = default;
};

// By choice: ways to synchronise that differ in their bucket plans only. 96 draws (24 where one
// has to be simulated as many steps), every second the opposite of the one before, so that means
// are those of many more, from the seed in `input`: the same input gives the same answer.
// `standard`: the choice that others are held against. Throws InputError when a step could last
// longer than longest_duration.
std::vector<DrawnRegret> drawn_regrets(const StepInput& input,
                                       const std::vector<SyncSettings>& choices,
                                       const ModelError& error, double tolerance,
                                       std::optional<std::size_t> standard = {});

}  // namespace bucketwise
