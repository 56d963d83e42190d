// What a step computes, from compute records: when each operation ends on the slowest rank, what
// copies cost, and how much it all varies.
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

// What the host takes to issue one: median, and interquartile range as a share of it.
struct HostCost {
    Duration time{0};
    double spread = 0;
    bool operator==(const HostCost&) const = default;
};

// Nothing without samples.
std::optional<HostCost> host_cost(const std::vector<double>& samples_us);

// What launching one operation takes, from all records; nothing if none was launched by itself.
std::optional<HostCost> launch_cost(const std::vector<const ComputeRecord*>& records);
// What launching a step as one CUDA graph takes; nothing if none ran as one.
std::optional<HostCost> graph_launch_cost(const std::vector<const ComputeRecord*>& records);

struct ComputeFit {
    // The operations of a micro-step. Operation i ends when, in the median round, the last rank has
    // finished it: an all-reduce waits for that one. Scaled so that all micro-steps together, with
    // what the host takes to launch, last as long as they did.
    std::vector<Duration> forward_operations;
    std::vector<Duration> backward_operations;
    std::vector<Duration> ready;  // by gradient, from the start of backward
    Duration forward{0};          // of a micro-step
    Duration backward{0};
    Duration optimizer{0};
    // None: the host is the device, and launching is in the operations' times.
    std::optional<HostCost> launch;
    std::optional<HostCost> graph_launch;  // of the step as one CUDA graph; none: it was not run
    // Payload copied into and out of buckets per time of the device for it, where it was measured,
    // or else that the copying step took longer; none: the step copies nothing.
    std::optional<BytesPerSecond> copy_bandwidth;
    Variation variation;
    std::size_t rounds = 0;
    std::vector<std::string> warnings;
    bool operator==(const ComputeFit&) const = default;
};

// `scenario` is the measured one. Nothing without compute records, or without a round that every
// rank finished. Throws InputError for records of another scenario's operations.
std::optional<ComputeFit> fit_compute(const MeasuredRun& run, const Scenario& scenario);

// A whole step without communication of the slowest rank in the median round; nothing likewise.
std::optional<double> compute_step_us(const MeasuredRun& run);

}  // namespace bucketwise
