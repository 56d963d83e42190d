// The knobs of a strategy beside caps and groups, each tried alone and the best of them in pairs.
#pragma once

#include "sim/predict/lever.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// `prediction` is the scenario's, and `input` its simulator's input. A lever fits the device, as
// far as that is known, and saves at least 2 % of the advised step: the mean of the typical preset
// and, where the link is one, of its slow end. Pairs are made of the four that save most, of long
// sharded steps of the two. A larger micro-batch has to save more than the knobs.
Levers levers_of(const Scenario& scenario, const StepInput& input, const Prediction& prediction);

// Each value of a group's knobs alone, and float8 also compiled, whatever it saves or loses, the
// one that saves most first. No value has an effect: empty.
std::vector<Lever> tuned_knobs(const Scenario& scenario, const StepInput& input,
                               const Prediction& prediction, Tuned tuned);

}  // namespace bucketwise
