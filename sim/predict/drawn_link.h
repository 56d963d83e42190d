// A link's parameters, drawn from what its fit leaves open.
#pragma once

#include <vector>

#include "sim/engine/varied_steps.h"
#include "sim/link/link.h"

namespace bucketwise {

// In standard errors: two for each segment, the tiers' after the link's own, and three for the
// interference, as what is wrong with it is wrong at every size.
struct LinkDeviates {
    std::vector<double> segments;
    double compute = 0;
    double communication = 0;
    double start_delay = 0;
};

LinkDeviates drawn_deviates(const LinkParameters& link, Normal& normal);
LinkDeviates opposite(LinkDeviates deviates);

// Normal, those of a segment jointly, cut off at what they may be (latency 0, slowdown 1); a
// bandwidth's logarithm is, so that it stays above zero. Without errors nothing changes.
LinkParameters drawn_link(LinkParameters link, const LinkDeviates& deviates);

// Whether any was fitted: segments, of tiers too, and the link's own interference.
bool has_segment_errors(const LinkParameters& link);
bool has_interference_errors(const LinkParameters& link);

// The same with an error of interference where it has none: this share of what it is beyond 1.
LinkParameters with_declared_errors(LinkParameters link, double share);

}  // namespace bucketwise
