// A network: a topology with a number of ranks on it, as directed links and the ways over them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// One direction.
struct DirectedLink {
    Duration latency{0};
    BytesPerSecond bandwidth;
    bool operator==(const DirectedLink&) const = default;
};

// Indices into Network::links(), in the order they are crossed.
using Route = std::vector<std::int32_t>;

class Network {
  public:
    // Precondition (asserted): check_places() finds no fault.
    Network(const Topology& topology, std::int64_t ranks);

    [[nodiscard]] std::int64_t ranks() const { return ranks_; }
    [[nodiscard]] const std::vector<DirectedLink>& links() const { return links_; }

    // From one rank to another. Precondition (asserted): two different ranks.
    [[nodiscard]] Route route(std::int64_t from, std::int64_t to) const;

  private:
    void build_regular();
    void build_graph();
    void slow_down(const std::vector<SlowRank>& ranks);
    [[nodiscard]] Route regular_route(std::int64_t from, std::int64_t to) const;
    [[nodiscard]] Route graph_route(std::int64_t from, std::int64_t to) const;
    void cross_tiers(std::int64_t from_node, std::int64_t to_node, std::int64_t rail,
                     Route& route) const;
    void cross_sites(std::int64_t from_site, std::int64_t to_site, Route& route) const;
    [[nodiscard]] std::int64_t rail_of(std::int64_t rank) const;

    Topology topology_;
    std::int64_t ranks_;
    std::int64_t nodes_ = 1;
    std::int64_t nodes_per_site_ = 1;
    std::int64_t rails_ = 1;
    std::vector<DirectedLink> links_;
    std::int64_t first_nic_ = 0;
    // By tier, the first link of its groups: one up and one down per group and rail.
    std::vector<std::int64_t> first_of_tier_;
    std::int64_t first_site_ = 0;
    // In a graph: by rank to reach and vertex, the link to take next.
    std::vector<std::vector<std::int32_t>> next_link_;
};

// Where a topology cannot hold the ranks.
struct TopologyFault {
    std::string pointer;  // below the topology
    std::string expected;
    std::string got;
};

// Empty: every rank has a place, and a way to every other.
std::optional<TopologyFault> check_places(const Topology& topology, std::int64_t ranks);

}  // namespace bucketwise
