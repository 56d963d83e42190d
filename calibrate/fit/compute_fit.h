// The computing of a step, from compute records: the end of each operation on the slowest rank, the
// cost of copies, and the variation of both.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/measured_run.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/variation.h"

namespace bucketwise {

// The host's time to issue one: median, and interquartile range as a share of it.
struct HostCost {
    Duration time{0};
    double spread = 0;
    bool operator==(const HostCost&) const = default;
};

// Empty without samples.
std::optional<HostCost> host_cost(const std::vector<double>& samples_us);

struct ComputeFit {
    // The operations of a micro-step. Operation i ends when, in the median round, the last rank has
    // finished it: an all-reduce waits for that one. Scaled so that all micro-steps together, with
    // the host's launches, last as long as they did.
    std::vector<Duration> forward_operations;
    std::vector<Duration> backward_operations;
    std::vector<Duration> ready;  // by gradient, from the start of backward
    Duration forward{0};          // of a micro-step
    Duration backward{0};
    Duration optimizer{0};
    // The launch of an operation; empty: the host is the device, and launching is part of the
    // operations' times.
    std::optional<HostCost> launch;
    std::optional<HostCost> graph_launch;  // of the step as one CUDA graph; empty: it was not run
    // The payload copied into and out of buckets, per time of the device for it where that was
    // measured, else per extra time of the copying step; empty: the step copies nothing.
    std::optional<BytesPerSecond> copy_bandwidth;
    Variation variation;
    std::size_t rounds = 0;
    std::vector<std::string> warnings;
    bool operator==(const ComputeFit&) const = default;
};

// `scenario` is the measured one. Empty without compute records, or without a round that every
// rank finished. Throws InputError for records of another scenario's operations.
std::optional<ComputeFit> fit_compute(const MeasuredRun& run, const Scenario& scenario);

// The slowest rank's whole step without communication in the median round; empty without one.
std::optional<double> compute_step_us(const MeasuredRun& run);

}  // namespace bucketwise
