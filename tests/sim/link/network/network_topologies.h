// Topologies for tests, all with round numbers.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/link/network/topology.h"

namespace bucketwise::testing {

// 1 us and 100 GB/s from GPU to GPU.
inline Topology one_node(std::int64_t gpus) {
    Topology topology;
    topology.regular = RegularTopology{};
    topology.regular->node = {
        .gpus = gpus, .latency = duration_from_us(1), .bandwidth = bandwidth_from_gb_per_s(100)};
    return topology;
}

// Nodes of 4 GPUs with 4 NICs of 25 GB/s and 3 us, on switches that are crossed in no time.
inline Topology nodes_of_four() {
    Topology topology = one_node(4);
    topology.regular->nics = {.per_node = 4,
                              .latency = duration_from_us(3),
                              .bandwidth = bandwidth_from_gb_per_s(25),
                              .rails = true};
    return topology;
}

// The same with leaf switches of 2 nodes, 1 us, half their bandwidth up to the spine of 2 us.
inline Topology narrow_tree() {
    Topology topology = nodes_of_four();
    topology.regular->tiers = {
        {.name = "leaf", .nodes = 2, .latency = duration_from_us(1), .oversubscription = 2},
        {.name = "spine", .nodes = 8, .latency = duration_from_us(2)}};
    return topology;
}

// Four of these in a ring, 1 ms and 10 GB/s apart.
inline Topology ring_of_sites() {
    Topology topology = narrow_tree();
    topology.regular->sites = SitesTopology{
        .count = 4, .latency = duration_from_us(1000), .bandwidth = bandwidth_from_gb_per_s(10)};
    return topology;
}

}  // namespace bucketwise::testing
