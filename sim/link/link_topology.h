// A link whose costs follow from a topology: whether it can be asked, and made ready to be.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/link/network/network.h"

namespace bucketwise {

// On the line through the two nearest sizes. Precondition (asserted): at least two.
Duration interpolate(const std::vector<SimulatedTime>& times, Bytes bytes);

// Why this topology cannot serve a collective of so many ranks with this algorithm; the pointer is
// below the link. Empty: it can.
std::optional<TopologyFault> check_topology(const LinkParameters& link, std::int64_t ranks);

// Makes a link with a topology ready for so many ranks: checks it, and fills in
// LinkParameters::simulated where it needs that, from all-reduces of 256 B to 4 GiB.
std::optional<TopologyFault> prepare_topology(LinkParameters& link, std::int64_t ranks);

}  // namespace bucketwise
