// A training run as the simulator sees it: from a scenario's device and link, or from what every
// operation and all-reduce took by itself.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "hw/training/trainer.h"
#include "sim/predict/training.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// One implementation's operations alone, and the all-reduces of its buckets. Means over ranks.
struct TrainingMeasurement {
    // By samples of the micro-step, and whether it adds to gradients that are there.
    std::map<std::pair<std::int64_t, bool>, TrainingTimes> operations;
    std::map<std::int64_t, Duration> all_reduces;  // by bytes; of the slowest rank
    Duration issue{0};                             // host time to launch one
    double compute_slowdown = 1;                   // while all-reduces run
    double communication_slowdown = 1;             // while a rank computes
    bool host_is_device = false;
};

// The kinds of micro-steps that rank 0 has in an epoch.
std::vector<std::pair<std::int64_t, bool>> micro_step_kinds(const TrainingSchedule& schedule);

// `workload`: the trainer's, whose times are not looked at. An all-reduce takes what was measured
// of its very size; nothing is fitted.
TrainingTime predict_training(const TrainingTask& task, const Workload& workload,
                              const TrainingMeasurement& measured);

// `scenario`: of a perceptron, whose batch is a full micro-step. The samples are copied from the
// set of all at the price of a copy, where there is one. Measured times go by the number of
// samples.
TrainingTime predict_training(const TrainingTask& task, const Scenario& scenario);

// What the memory model says, in bytes by rank. `alignment` and `workspace`: of the device.
std::vector<std::int64_t> predict_memory(const TrainingTask& task, std::int64_t test_samples,
                                         Bytes alignment, Bytes workspace);

}  // namespace bucketwise
