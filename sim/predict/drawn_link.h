// A link's parameters, drawn from the errors of its fit.
#pragma once

#include <vector>

#include "sim/engine/varied_steps.h"
#include "sim/link/link.h"

namespace bucketwise {

// In standard errors: two for each segment, the tiers' after the link's own, and three for
// interference (of compute, communication and start delay), whose error is the same at every size.
using LinkDeviates = std::vector<double>;

LinkDeviates drawn_deviates(const LinkParameters& link, Normal& normal);

// Normal, jointly for a segment, and cut off at the limits of a link (latency 0, slowdown 1); for
// bandwidths the logarithm is normal, so that they stay positive. No errors, no change. `sign` -1
// gives the opposite draw.
LinkParameters drawn_link(LinkParameters link, const LinkDeviates& deviates, double sign = 1);

// Whether a fit gave errors: of segments, also of tiers; of the link's own interference.
bool has_segment_errors(const LinkParameters& link);
bool has_interference_errors(const LinkParameters& link);

// With an error of interference where the link states none: this share of its excess over 1.
LinkParameters with_declared_errors(LinkParameters link, double share);

}  // namespace bucketwise
