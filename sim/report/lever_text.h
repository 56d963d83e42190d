// The knobs beside caps and groups in words: their gain, cost, and spelling.
#pragma once

#include <string>
#include <vector>

#include "sim/predict/lever.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// A sentence after a space that names those that save most; empty: no knob saves enough.
std::string levers_sentence(const Scenario& scenario, const Levers& levers);

// All of them as a table, and the lines to type; empty where there are none.
std::string levers_table(const Scenario& scenario, const Levers& levers);

// The knobs of a group, the one that saves most first: a sentence and a table.
std::string tuned_text(const Scenario& scenario, Tuned tuned, const std::vector<Lever>& levers);

// "gradients reduced in the last micro-step alone".
std::string lever_name(const Scenario& scenario, const LeverChange& change);

// "set_requires_gradient_sync(False) in all other micro-steps (gradient_sync: last_micro_step)".
std::string lever_typed(const Scenario& scenario, const LeverChange& change);

// The cost beside memory, such as "sums of 16 bits"; empty: nothing.
std::string lever_cost(const Scenario& scenario, const LeverChange& change);

}  // namespace bucketwise
