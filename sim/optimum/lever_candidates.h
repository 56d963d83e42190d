// The knobs of a strategy beside caps and groups, as changes of a scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/predict/lever.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// False where the knob has no effect on this scenario.
using LeverEdit = std::function<bool(Scenario&)>;

struct LeverCandidate {
    LeverChange change;
    LeverEdit edit;
    std::int64_t samples = 1;  // as many times those of the scenario's step
};

// All that may have an effect on such a scenario.
std::vector<LeverCandidate> lever_candidates(const Scenario& scenario);

// The knobs of a group, each value of them.
std::vector<LeverCandidate> tuning_candidates(const Scenario& scenario, Tuned tuned);

// Four times as many micro-steps for each reduction, and for each step of the optimizer.
LeverCandidate more_micro_steps(const Scenario& scenario);

}  // namespace bucketwise
