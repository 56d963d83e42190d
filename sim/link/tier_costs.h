// The costs that a hierarchical link takes from its tiers.
#pragma once

#include "sim/link/link.h"

namespace bucketwise {

// Where the link says nothing itself it takes the costlier of its tiers' costs.
void inherit_costs(const LinkParameters& tier, LinkParameters& link);

}  // namespace bucketwise
