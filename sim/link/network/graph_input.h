// The keys of a topology that is a graph.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/json_table.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

constexpr std::int64_t most_ports = 1'000'000;  // of a switch

// Without readers, as one key of a graph depends on another.
std::vector<JsonKey<Topology>> graph_rows();

// Throws InputError, also where the graph is not what its routing says it is.
GraphTopology read_graph(const JsonObject& topology);

}  // namespace bucketwise
