// How long training takes: every step of an epoch, the smaller last one included, simulated as what
// it is made of.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/workload/training_schedule.h"

namespace bucketwise {

// The input of a micro-step of so many samples on each rank; `accumulates`: all of a step but its
// first add to gradients that are there. Its accumulation is not looked at. Called once for each
// kind of micro-step that there is.
using MicroStepInput = std::function<StepInput(std::int64_t samples, bool accumulates)>;

struct TrainingTime {
    Duration full_step{0};
    Duration last_step{0};        // the same where the epoch divides
    std::int64_t full_steps = 0;  // of an epoch; then comes the last one

    [[nodiscard]] Duration epoch() const { return full_steps * full_step + last_step; }
    bool operator==(const TrainingTime&) const = default;
};

// Ranks are as slow as rank 0, which has the most samples. Throws InputError for a step that could
// last longer than longest_duration.
TrainingTime training_time(const TrainingSchedule& schedule, const SyncSettings& sync,
                           const BucketPlan& plan, const MicroStepInput& input_of);

}  // namespace bucketwise
