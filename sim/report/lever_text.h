// Sentences on the knobs beside caps and groups: their gain, cost, and spelling.
#pragma once

#include <string>

#include "sim/predict/lever.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Whole sentences, each after a space; empty: no knob saves enough.
std::string levers_text(const Scenario& scenario, const Levers& levers);

// "gradients reduced in the last micro-step alone (gradient_sync: last_micro_step, ...)".
std::string lever_name(const Scenario& scenario, const LeverChange& change);

// The cost beside memory; empty: nothing.
std::string lever_cost(const LeverChange& change);

}  // namespace bucketwise
