// A topology as a link file holds it.
#pragma once

#include "sim/base/json_table.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// Reading throws InputError, also where a graph is not what its routing says it is. Whether it
// holds a number of ranks is for check_places() to say. Precondition of writing (asserted): it is
// regular.
JsonType<Topology> topology_type();

}  // namespace bucketwise
