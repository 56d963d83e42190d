// Ways to run a step, each simulated, and measured on real ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hw/measure/rank_session.h"
#include "sim/plan/cap.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct StepVariant {
    std::string label;  // for progress and messages
    Scenario scenario;
    Cap cap = {};
};

// The times of one step.
struct StepSample {
    double forward_us = 0;
    double backward_us = 0;  // until the last reduced gradient is back in place
    double optimizer_us = 0;
    // The part of backward in the call that finishes synchronisation: on the device, from the end
    // of the work that backward left there; and on the host's clock, which may run ahead of it.
    double finishing_us = 0;
    double finishing_host_us = 0;
    double wire_us = 0;  // of the gradients' collectives, together
    [[nodiscard]] double step_us() const { return forward_us + backward_us + optimizer_us; }
};

using StepSamples = std::vector<StepSample>;

// `steps` of them where the scenario varies from step to step, else one. Throws InputError for
// steps that are too long.
StepSamples simulate_steps(const StepVariant& variant, std::int64_t steps);

// Collective. The samples of the slowest rank, by variant, on rank 0. Each round runs every
// variant: one step that warms up, then `steps`.
std::vector<StepSamples> measure_steps(const std::vector<StepVariant>& variants, std::int64_t steps,
                                       const MeasuringOrder& order, RankSession& session);

}  // namespace bucketwise
