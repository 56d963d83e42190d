#include "sim/link/network/network.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/sim/link/network/network_topologies.h"

namespace bucketwise {
namespace {

Duration latency_of(const Network& network, std::int64_t from, std::int64_t to) {
    Duration latency{0};
    for (const std::int32_t link : network.route(from, to)) {
        latency += network.links()[static_cast<std::size_t>(link)].latency;
    }
    return latency;
}

double narrowest_gb_per_s(const Network& network, std::int64_t from, std::int64_t to) {
    double narrowest = 1e300;
    for (const std::int32_t link : network.route(from, to)) {
        const BytesPerSecond bandwidth = network.links()[static_cast<std::size_t>(link)].bandwidth;
        narrowest = std::min(narrowest, static_cast<double>(bandwidth.count) / 1e9);
    }
    return narrowest;
}

TEST_CASE("ways go no further up than they must") {
    const Network network(testing::ring_of_sites(), 64);  // 4 nodes of 4 GPUs a site
    CHECK(network.route(0, 1).size() == 2);               // the node's fabric
    CHECK(latency_of(network, 0, 1) == duration_from_us(1));
    // Rank 4 is the first of the next node: NIC to leaf to NIC, 3 + 1 us.
    CHECK(network.route(0, 4).size() == 2);
    CHECK(latency_of(network, 0, 4) == duration_from_us(4));
    CHECK(narrowest_gb_per_s(network, 0, 4) == 25);
    // Node 2 is below another leaf: up and down one uplink each, 3 + 1 + 2 us. A rail's uplink has
    // 2 nodes' NICs halved: 25 GB/s.
    CHECK(network.route(0, 8).size() == 4);
    CHECK(latency_of(network, 0, 8) == duration_from_us(6));
    CHECK(narrowest_gb_per_s(network, 0, 8) == 25);
    // The next site: 1 ms more, and 10 GB/s; two sites on, 2 ms; three, one step back.
    CHECK(latency_of(network, 0, 16) == duration_from_us(1006));
    CHECK(narrowest_gb_per_s(network, 0, 16) == 10);
    CHECK(latency_of(network, 0, 32) == duration_from_us(2006));
    CHECK(latency_of(network, 0, 48) == duration_from_us(1006));
}

TEST_CASE("what goes to another rail crosses its own node first, and no link twice") {
    const Network network(testing::nodes_of_four(), 16);
    // From GPU 0 to GPU 1 of the next node: 1 us to GPU 1 of its own, then rail 1's NICs.
    const Route route = network.route(0, 5);
    CHECK(route.size() == 4);
    CHECK(latency_of(network, 0, 5) == duration_from_us(1 + 3));
    Topology plain = testing::nodes_of_four();
    plain.regular->nics->rails = false;
    CHECK(Network(plain, 16).route(0, 5).size() == 2);
    for (std::int64_t from = 0; from < 16; ++from) {
        for (std::int64_t to = 0; to < 16; ++to) {
            if (from != to) {
                Route links = network.route(from, to);
                std::sort(links.begin(), links.end());
                CHECK(std::adjacent_find(links.begin(), links.end()) == links.end());
            }
        }
    }
}

GraphTopology triangle() {
    // Ranks a, b, c; switches s, t. a - s - b, b - t - c, and a long way a - t.
    GraphTopology graph;
    graph.ranks = 3;
    graph.names = {"a", "b", "c", "s", "t"};
    const BytesPerSecond fast = bandwidth_from_gb_per_s(10);
    graph.links = {{0, 3, duration_from_us(1), fast},
                   {3, 1, duration_from_us(1), fast},
                   {1, 4, duration_from_us(1), fast},
                   {4, 2, duration_from_us(1), fast},
                   {0, 4, duration_from_us(9), fast}};
    return graph;
}

TEST_CASE("in a graph the way of least latency is taken, and ranks pass nothing on") {
    Topology topology;
    topology.graph = triangle();
    const Network network(topology, 3);
    CHECK(latency_of(network, 0, 1) == duration_from_us(2));
    // Through b it would be 4 us; b is a rank.
    CHECK(latency_of(network, 0, 2) == duration_from_us(10));
    // The way back uses the other direction of the same links.
    const Route there = network.route(0, 2);
    const Route back = network.route(2, 0);
    REQUIRE(there.size() == back.size());
    for (std::size_t i = 0; i < there.size(); ++i) {
        CHECK(there[i] / 2 == back[back.size() - 1 - i] / 2);
        CHECK(there[i] != back[back.size() - 1 - i]);
    }
}

TEST_CASE("ranks without a place or without a way are found") {
    const auto fault = [](const Topology& topology, std::int64_t ranks) {
        const auto found = check_places(topology, ranks);
        return found ? found->pointer + ": " + found->got : "";
    };
    CHECK(fault(testing::one_node(8), 8).empty());
    CHECK(fault(testing::one_node(8), 5).empty());
    CHECK(fault(testing::one_node(8), 16) == ": nodes without a way to one another");
    CHECK(fault(testing::nodes_of_four(), 10) == "/node/gpus: 4");
    CHECK(fault(testing::narrow_tree(), 32).empty());
    CHECK(fault(testing::narrow_tree(), 36) == "/tiers/1/nodes: 8");
    CHECK(fault(testing::ring_of_sites(), 20) == "/sites/count: 4");
    Topology ports = testing::narrow_tree();
    // 2 nodes with a rail's NIC each below, and half as many up: 3 ports.
    ports.regular->tiers[0].ports = 3;
    CHECK(fault(ports, 32).empty());
    ports.regular->tiers[0].ports = 2;
    CHECK(fault(ports, 32) == "/tiers/0/ports: 2");
    Topology graph;
    graph.graph = triangle();
    CHECK(fault(graph, 3).empty());
    CHECK(fault(graph, 4) == "/ranks: 3");
    graph.graph->links.pop_back();
    CHECK(fault(graph, 3) == "/links: no way from c to a but through ranks");
    // Two ranks that meet at a third one only.
    graph.graph->links = {{0, 1, Duration{0}, {1}}, {0, 2, Duration{0}, {1}}};
    CHECK(fault(graph, 3) == "/links: no way from c to b but through ranks");
    Topology slow = testing::one_node(8);
    slow.slow_ranks = {{.rank = 8}};
    CHECK(fault(slow, 8) == "/slow_ranks/0/rank: 8");
    slow.slow_ranks.clear();
    slow.background = {{1, 1, {1000}}};
    CHECK(fault(slow, 8) == "/background/0: 1 and 1");
}

}  // namespace
}  // namespace bucketwise
