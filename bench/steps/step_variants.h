// Ways to run a step that a table sets side by side: each simulated, and measured on real ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_options.h"
#include "hw/launch/rank_identity.h"
#include "hw/record/measurement.h"
#include "sim/plan/cap.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct StepVariant {
    std::string label;  // for progress and messages
    Scenario scenario;
    Cap cap = {};
};

// What one step took.
struct StepSample {
    double forward_us = 0;
    double backward_us = 0;  // until the last reduced gradient is back in place
    double optimizer_us = 0;
    // The part of backward in the call that finishes synchronisation: on the device, from the end
    // of what backward left there, and on the host's clock, which may run ahead of it.
    double finishing_us = 0;
    double finishing_host_us = 0;
    double wire_us = 0;  // of the gradients' collectives, together
    [[nodiscard]] double step_us() const { return forward_us + backward_us + optimizer_us; }
};

using StepSamples = std::vector<StepSample>;

// `steps` of them where the scenario varies from step to step; else one, as all would be alike.
// Throws InputError for steps that are too long.
StepSamples simulate_steps(const StepVariant& variant, std::int64_t steps);

struct VariantRun : BenchOptions {
    std::int64_t steps_per_round = 1;  // after one that warms up
};

// Gets each variant's samples, of the slowest rank each.
using PrintVariants = std::function<void(const EnvironmentRecord& environment,
                                         const std::vector<StepSamples>& by_variant)>;

// Measures on real ranks, as run_rank_bench() does.
int run_variants(const std::vector<StepVariant>& variants, const VariantRun& run,
                 const std::optional<RankIdentity>& identity, const PrintVariants& print);

}  // namespace bucketwise
