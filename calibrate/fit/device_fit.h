// Device parameters from the times of a model's operations.
#pragma once

#include <cstddef>
#include <optional>

#include "calibrate/fit/compute_fit.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/device.h"

namespace bucketwise {

struct DeviceFit {
    Device device;  // peak rate of the scenario's arithmetic, memory bandwidth and launch cost as
                    // reached, so both efficiencies are 1
    double compute_error = 0;  // standard errors, as shares
    double memory_error = 0;
    std::size_t compute_bound = 0;  // operations
    std::size_t memory_bound = 0;
    double typical_residual = 0;  // median of |fitted / measured - 1| over operations
    bool operator==(const DeviceFit&) const = default;
};

// The roofline (sim/workload/device.h) plus a launch cost per operation, by non-negative least
// squares of relative residuals; the fit decides which roof bounds an operation, until nothing
// changes. Empty for a workload that is not a model, with fewer than four operations long enough to
// be timed, or if all are bound by the same roof: the other rate is then unknown.
std::optional<DeviceFit> fit_device(const Scenario& scenario, const ComputeFit& compute);

}  // namespace bucketwise
