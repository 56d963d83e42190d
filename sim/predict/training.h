// Training: the time of every step of an epoch, including a smaller last one, simulated in parts;
// and the memory of a multilayer perceptron's training on one rank, all tensors of hw/training. All
// of them live from beginning to end, so their sum is the peak.
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

// The input of a micro-step of so many samples on each rank; `accumulates`: it adds to gradients of
// an earlier micro-step. Its accumulation is ignored. Called once for each kind of micro-step.
using MicroStepInput = std::function<StepInput(std::int64_t samples, bool accumulates)>;

struct TrainingTime {
    Duration full_step{0};
    Duration last_step{0};        // equal to full_step if the epoch divides
    std::int64_t full_steps = 0;  // of an epoch, before the last step

    [[nodiscard]] Duration epoch() const { return full_steps * full_step + last_step; }
    bool operator==(const TrainingTime&) const = default;
};

// All ranks are as slow as rank 0, which has the most samples. Throws InputError for a step that
// could last longer than longest_duration.
TrainingTime training_time(const TrainingSchedule& schedule, const SyncSettings& sync,
                           const BucketPlan& plan, const MicroStepInput& input_of);

// --- memory ---

struct TrainingMemoryInput {
    MlpShape shape;
    TrainingSchedule schedule;
    std::int64_t test_samples = 0;
    SyncSettings sync;
    Optimizer optimizer = Optimizer::sgd;
    Bytes alignment{64};  // of tensors that share a block
    Bytes workspace{0};   // of matrix multiplication libraries
};

// float32, except labels and places (int32) and a hook's buckets (16 bits).
struct TrainingMemory {
    Bytes data;        // all samples, labels, an epoch's order, each sample's loss
    Bytes parameters;  // each at a multiple of the alignment
    Bytes moments;     // of the optimizer, as parameters
    Bytes gradients;   // outside buckets; zero if gradients are views of their buckets
    // The bytes of all gradients, each aligned, for every plan; and half of that for a hook.
    Bytes buckets;
    Bytes activations;           // of one micro-step: its samples and each layer's output
    Bytes activation_gradients;  // two of the widest layer, used by layers in turn
    Bytes workspace;

    [[nodiscard]] Bytes total() const {
        return data + parameters + moments + gradients + buckets + activations +
               activation_gradients + workspace;
    }
};

// The memory of `rank`, which has its samples of the schedule.
TrainingMemory training_memory(const TrainingMemoryInput& input, std::int64_t rank);

}  // namespace bucketwise
