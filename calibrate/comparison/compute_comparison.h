// A step of one rank without communication: predicted from its operations measured one by one, and
// each operation from the device fitted to all of them, beside what was measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/compute_fit.h"
#include "calibrate/fit/device_fit.h"
#include "hw/record/measurement.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct ComparedOperation {
    std::string name;
    bool in_backward = false;
    double measured_us = 0;  // median over rounds, by itself
    // By the roofline fitted to it and all others; 0: no device was fitted.
    double fitted_us = 0;
    double launch_us = 0;  // median host time; 0: the host is the device
    bool operator==(const ComparedOperation&) const = default;
};

struct ComparedTime {
    double predicted_us = 0;
    double measured_us = 0;  // median over rounds
    [[nodiscard]] double error() const { return predicted_us / measured_us - 1; }
    bool operator==(const ComparedTime&) const = default;
};

struct ComputeComparison {
    std::vector<ComparedOperation> operations;  // in the order they run
    ComparedTime forward;
    ComparedTime backward;
    ComparedTime step;  // of all micro-steps, with the optimizer as measured
    std::optional<HostCost> launch;
    std::optional<HostCost> graph_launch;
    double host_us = 0;    // what the host takes to launch the step
    double device_us = 0;  // what the device is busy with
    double noise = 0;      // interquartile range of the measured step by its median
    std::optional<DeviceFit> device;
    bool operator==(const ComputeComparison&) const = default;

    [[nodiscard]] bool is_launch_bound() const { return host_us > device_us; }
};

// `records` are of one rank and of `scenario`, whose workload is a model's (precondition,
// asserted). The step's operations and the whole step are different measurements: the prediction
// scales nothing to what it is compared with.
ComputeComparison compare_compute(const std::vector<ComputeRecord>& records,
                                  const Scenario& scenario);

}  // namespace bucketwise
