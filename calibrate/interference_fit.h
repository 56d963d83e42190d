// How much collectives and computing slow each other, from contention runs.
#pragma once

#include <cstddef>
#include <vector>

#include "hw/measurement.h"
#include "sim/link.h"
#include "sim/units.h"

namespace bucketwise {

// What was measured with messages of one size: factors, and their standard errors over rounds.
struct InterferencePoint {
    Bytes size;
    double compute_slowdown = 1;
    double compute_error = 0;
    double communication_slowdown = 1;
    double communication_error = 0;
    std::size_t rounds = 0;
    bool operator==(const InterferencePoint&) const = default;
};

struct InterferenceFit {
    std::vector<InterferenceSegment> segments;  // one: the size does not matter
    std::vector<InterferencePoint> points;      // by size
    bool operator==(const InterferenceFit&) const = default;
};

// One pair of factors if the sizes agree within their errors, else one per size, each serving up to
// the geometric middle between it and the next: whichever has the smaller Bayesian information
// criterion. Factors below 1 become 1. Without records there is no segment.
//
// A collective is slowed by the mean of its disturbed samples over the median of those alone: the
// link's cost is one of medians, and what waits for a processor is seldom but long, so that a
// median would hide it.
InterferenceFit fit_interference(const std::vector<ContentionRecord>& records);

}  // namespace bucketwise
