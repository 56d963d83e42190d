// Training: how long it takes, every step of an epoch, the smaller last one included, simulated as
// what it is made of; and the memory that a multilayer perceptron's takes on one rank, every tensor
// of hw/training, all there from beginning to end, so that the sum is also the peak.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"
#include "sim/workload/training_schedule.h"

namespace bucketwise {

// --- time ---

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

// --- memory ---

struct TrainingMemoryInput {
    MlpShape shape;
    TrainingSchedule schedule;
    std::int64_t test_samples = 0;
    SyncSettings sync;
    Optimizer optimizer = Optimizer::sgd;
    Bytes alignment{64};  // at which tensors that share a block start
    Bytes workspace{0};   // of the libraries that multiply
};

// float32, but for labels and places (int32) and a hook's buckets (16 bits).
struct TrainingMemory {
    Bytes data;        // all samples, labels, an epoch's order, each sample's loss
    Bytes parameters;  // each at a multiple of the alignment
    Bytes moments;     // of the optimizer, as parameters
    Bytes gradients;   // outside of buckets; none where gradients are views of their buckets
    // As many bytes as gradients, each aligned, whatever the plan; and half of that for a hook.
    Bytes buckets;
    Bytes activations;           // of one micro-step: its samples, and what each layer gives
    Bytes activation_gradients;  // two of the widest layer, which layers take in turn
    Bytes workspace;

    [[nodiscard]] Bytes total() const {
        return data + parameters + moments + gradients + buckets + activations +
               activation_gradients + workspace;
    }
};

// What `rank` takes, whose samples are those of the schedule.
TrainingMemory training_memory(const TrainingMemoryInput& input, std::int64_t rank);

}  // namespace bucketwise
