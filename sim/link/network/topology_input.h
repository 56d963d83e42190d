// Reading a topology from a link file. Keys: scenarios/README.md.
#pragma once

#include "sim/base/json_input.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// Throws InputError, also where a graph is not what its routing says it is. Whether it holds a
// number of ranks is for check_places() to say.
Topology read_topology(const JsonPlace& place);

}  // namespace bucketwise
