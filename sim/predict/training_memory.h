// The memory that training a multilayer perceptron takes on one rank: every tensor of
// hw/training, all there from beginning to end, so that the sum is also the peak.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/plan/strategy.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"
#include "sim/workload/training_schedule.h"

namespace bucketwise {

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
