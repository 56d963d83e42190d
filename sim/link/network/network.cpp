#include "sim/link/network/network.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include <fmt/format.h>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

std::size_t index(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

// At least a byte and at most an exabyte a second, which no bundle of links comes near.
BytesPerSecond times(BytesPerSecond bandwidth, double factor) {
    constexpr double most = 1e18;
    const double product = static_cast<double>(bandwidth.count) * factor;
    return {std::llround(std::clamp(product, 1.0, most))};
}

// Ranks whose NIC is the same have the same rail.
std::int64_t nics_of(const RegularTopology& topology) {
    return topology.nics ? topology.nics->per_node : 1;
}

// --- ways through a graph -----------------------------------------------------------------------

// Dijkstra's algorithm backwards from `target`: by vertex, the directed link to take next, or -1.
// Link 2k is from a to b of GraphLink k, link 2k + 1 back.
std::vector<std::int32_t> links_towards(const GraphTopology& graph, std::int32_t target,
                                        const std::vector<std::vector<std::int32_t>>& links_at) {
    struct Way {
        Duration latency{Duration::max()};
        std::int64_t links = 0;
        std::int32_t first_link = -1;
        auto operator<=>(const Way&) const = default;
    };
    std::vector<Way> ways(graph.names.size());
    std::vector<char> done(graph.names.size(), 0);
    using Entry = std::tuple<Duration, std::int64_t, std::int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    ways[index(target)] = {Duration{0}, 0, -1};
    queue.emplace(Duration{0}, 0, target);
    while (!queue.empty()) {
        const std::int32_t vertex = std::get<2>(queue.top());
        queue.pop();
        if (done[index(vertex)] != 0) {
            continue;
        }
        done[index(vertex)] = 1;
        // Ranks do not forward what others send.
        if (vertex < graph.ranks && vertex != target) {
            continue;
        }
        for (const std::int32_t k : links_at[index(vertex)]) {
            const GraphLink& link = graph.links[index(k)];
            const bool forwards = link.b == vertex;  // from a to this vertex
            const std::int32_t other = forwards ? link.a : link.b;
            const Way way{ways[index(vertex)].latency + link.latency, ways[index(vertex)].links + 1,
                          2 * k + (forwards ? 0 : 1)};
            if (done[index(other)] == 0 && way < ways[index(other)]) {
                ways[index(other)] = way;
                queue.emplace(way.latency, way.links, other);
            }
        }
    }
    return transformed(ways, &Way::first_link);
}

std::vector<std::vector<std::int32_t>> links_by_vertex(const GraphTopology& graph) {
    std::vector<std::vector<std::int32_t>> links(graph.names.size());
    for (std::size_t k = 0; k < graph.links.size(); ++k) {
        links[index(graph.links[k].a)].push_back(static_cast<std::int32_t>(k));
        links[index(graph.links[k].b)].push_back(static_cast<std::int32_t>(k));
    }
    return links;
}

// --- faults -------------------------------------------------------------------------------------

using Fault = std::optional<TopologyFault>;

Fault check_ports(const RegularTopology& topology) {
    std::int64_t below = 1;  // nodes under one port's cable
    for (std::size_t t = 0; t < topology.tiers.size(); ++t) {
        const TierTopology& tier = topology.tiers[t];
        // The cables of a group below, as many as it has to this tier.
        const double cables_each =
            t == 0 ? static_cast<double>(topology.nics->rails ? 1 : topology.nics->per_node) : 1.0;
        const double down =
            static_cast<double>(tier.nodes) / static_cast<double>(below) * cables_each;
        const bool outermost = t + 1 == topology.tiers.size();
        const double up = outermost ? 0 : down / tier.oversubscription;
        if (tier.ports && down + std::ceil(up) > static_cast<double>(*tier.ports)) {
            return TopologyFault{fmt::format("/tiers/{}/ports", t),
                                 fmt::format("at least {:.0f} ports: {:.0f} down and {:.0f} up",
                                             down + std::ceil(up), down, std::ceil(up)),
                                 std::to_string(*tier.ports)};
        }
        below = tier.nodes;
    }
    return std::nullopt;
}

Fault check_regular(const RegularTopology& topology, std::int64_t ranks) {
    const std::int64_t nodes = divided(ranks, topology.node.gpus);
    if (nodes == 1) {
        return std::nullopt;
    }
    if (ranks % topology.node.gpus != 0) {
        return TopologyFault{"/node/gpus", fmt::format("a number that divides ranks ({})", ranks),
                             std::to_string(topology.node.gpus)};
    }
    if (!topology.nics) {
        return TopologyFault{"", fmt::format("the key nics, which connects {} nodes", nodes),
                             "nodes without a way to one another"};
    }
    const std::int64_t sites = topology.sites ? topology.sites->count : 1;
    if (nodes % sites != 0) {
        return TopologyFault{"/sites/count", fmt::format("a number that divides {} nodes", nodes),
                             std::to_string(sites)};
    }
    if (!topology.tiers.empty() && nodes / sites > topology.tiers.back().nodes) {
        return TopologyFault{fmt::format("/tiers/{}/nodes", topology.tiers.size() - 1),
                             fmt::format("an outermost tier that connects all {} nodes{}",
                                         nodes / sites, topology.sites ? " of a site" : ""),
                             std::to_string(topology.tiers.back().nodes)};
    }
    return check_ports(topology);
}

Fault check_graph(const GraphTopology& graph, std::int64_t ranks) {
    if (graph.ranks != ranks) {
        return TopologyFault{"/ranks", fmt::format("a name for each of {} ranks", ranks),
                             std::to_string(graph.ranks)};
    }
    const std::vector<std::vector<std::int32_t>> links_at = links_by_vertex(graph);
    for (std::int32_t target = 0; target < ranks; ++target) {
        const std::vector<std::int32_t> next = links_towards(graph, target, links_at);
        for (std::int32_t rank = 0; rank < ranks; ++rank) {
            if (rank != target && next[index(rank)] < 0) {
                return TopologyFault{
                    "/links", "a network in which every rank reaches every other",
                    fmt::format("no way from {} to {} but through ranks", graph.names[index(rank)],
                                graph.names[index(target)])};
            }
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<TopologyFault> check_places(const Topology& topology, std::int64_t ranks) {
    if (Fault fault = topology.graph ? check_graph(*topology.graph, ranks)
                                     : check_regular(*topology.regular, ranks)) {
        return fault;
    }
    for (std::size_t i = 0; i < topology.slow_ranks.size(); ++i) {
        if (topology.slow_ranks[i].rank >= ranks) {
            return TopologyFault{fmt::format("/slow_ranks/{}/rank", i),
                                 fmt::format("a rank from 0 to {}", ranks - 1),
                                 std::to_string(topology.slow_ranks[i].rank)};
        }
    }
    for (std::size_t i = 0; i < topology.background.size(); ++i) {
        const BackgroundFlow& flow = topology.background[i];
        if (std::max(flow.from, flow.to) >= ranks || flow.from == flow.to) {
            return TopologyFault{fmt::format("/background/{}", i),
                                 fmt::format("two different ranks from 0 to {}", ranks - 1),
                                 fmt::format("{} and {}", flow.from, flow.to)};
        }
    }
    return std::nullopt;
}

Network::Network(const Topology& topology, std::int64_t ranks)
    : topology_(topology), ranks_(ranks) {
    invariant(!check_places(topology, ranks), "the topology has a place for every rank");
    if (topology_.graph) {
        build_graph();
    } else {
        build_regular();
    }
    slow_down(topology_.slow_ranks);
}

// Links: up and down of every GPU; up and down of every NIC; up and down of every group of every
// tier but the outermost; one way round the sites and the other. The first of two links that belong
// together carries the latency of both.
void Network::build_regular() {
    const RegularTopology& topology = *topology_.regular;
    nodes_ = divided(ranks_, topology.node.gpus);
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        links_.push_back({topology.node.latency, topology.node.bandwidth});
        links_.push_back({Duration{0}, topology.node.bandwidth});
    }
    nodes_per_site_ = topology.sites ? nodes_ / topology.sites->count : nodes_;
    if (nodes_ == 1) {
        return;
    }
    const NicTopology& nics = *topology.nics;
    rails_ = nics.rails ? nics.per_node : 1;
    first_nic_ = std::ssize(links_);
    const Duration first_switch =
        topology.tiers.empty() ? Duration{0} : topology.tiers.front().latency;
    for (std::int64_t nic = 0; nic < nodes_ * nics.per_node; ++nic) {
        links_.push_back({nics.latency + first_switch, nics.bandwidth});
        links_.push_back({Duration{0}, nics.bandwidth});
    }
    double share = 1;  // of the NICs' bandwidth that is left so far up
    for (std::size_t t = 0; t + 1 < topology.tiers.size(); ++t) {
        const TierTopology& tier = topology.tiers[t];
        share /= tier.oversubscription;
        const std::int64_t groups =
            divided(nodes_per_site_, tier.nodes) * (nodes_ / nodes_per_site_) * rails_;
        const double cables =
            static_cast<double>(tier.nodes * nics.per_node) / static_cast<double>(rails_);
        first_of_tier_.push_back(std::ssize(links_));
        for (std::int64_t group = 0; group < groups; ++group) {
            links_.push_back(
                {topology.tiers[t + 1].latency, times(nics.bandwidth, cables * share)});
            links_.push_back({Duration{0}, times(nics.bandwidth, cables * share)});
        }
    }
    if (topology.sites) {
        first_site_ = std::ssize(links_);
        links_.insert(links_.end(), index(2 * topology.sites->count),
                      {topology.sites->latency, topology.sites->bandwidth});
    }
}

void Network::build_graph() {
    const GraphTopology& graph = *topology_.graph;
    for (const GraphLink& link : graph.links) {
        links_.insert(links_.end(), 2, {link.latency, link.bandwidth});
    }
    const std::vector<std::vector<std::int32_t>> links_at = links_by_vertex(graph);
    for (std::int32_t rank = 0; rank < ranks_; ++rank) {
        next_link_.push_back(links_towards(graph, rank, links_at));
    }
}

// The first link of every way from the rank and the last link of every way to it are its own, or
// those of the NIC it sends through, which others may share.
void Network::slow_down(const std::vector<SlowRank>& ranks) {
    for (const SlowRank& slow : ranks) {
        std::vector<std::int64_t> own;
        if (topology_.graph) {
            for (std::size_t k = 0; k < topology_.graph->links.size(); ++k) {
                const GraphLink& link = topology_.graph->links[k];
                const auto first = static_cast<std::int64_t>(2 * k);
                if (link.a == slow.rank || link.b == slow.rank) {
                    const bool from_a = link.a == slow.rank;
                    own.insert(own.end(), {first + (from_a ? 0 : 1), first + (from_a ? 1 : 0)});
                }
            }
        } else {
            own = {2 * slow.rank, 2 * slow.rank + 1};
            if (nodes_ > 1) {
                const std::int64_t node = slow.rank / topology_.regular->node.gpus;
                const std::int64_t nic = node * nics_of(*topology_.regular) + rail_of(slow.rank);
                own.insert(own.end(), {first_nic_ + 2 * nic, first_nic_ + 2 * nic + 1});
            }
        }
        for (std::size_t i = 0; i < own.size(); ++i) {
            DirectedLink& link = links_[index(own[i])];
            link.bandwidth = times(link.bandwidth, slow.bandwidth_factor);
            link.latency += i % 2 == 0 ? slow.extra_latency : Duration{0};
        }
    }
}

std::int64_t Network::rail_of(std::int64_t rank) const {
    const std::int64_t gpus = topology_.regular->node.gpus;
    return rank % gpus * nics_of(*topology_.regular) / gpus;
}

Route Network::route(std::int64_t from, std::int64_t to) const {
    invariant(from != to && 0 <= std::min(from, to) && std::max(from, to) < ranks_,
              "a way leads from one rank to another");
    return topology_.graph ? graph_route(from, to) : regular_route(from, to);
}

Route Network::graph_route(std::int64_t from, std::int64_t to) const {
    Route route;
    auto vertex = static_cast<std::int32_t>(from);
    while (vertex != to) {
        const std::int32_t link = next_link_[index(to)][index(vertex)];
        invariant(link >= 0, "every rank reaches every other");
        route.push_back(link);
        const GraphLink& taken = topology_.graph->links[index(link / 2)];
        vertex = link % 2 == 0 ? taken.b : taken.a;
    }
    return route;
}

// With rails, what goes to another rail first crosses the node to the GPU on that rail (PXN).
Route Network::regular_route(std::int64_t from, std::int64_t to) const {
    const std::int64_t gpus = topology_.regular->node.gpus;
    const std::int64_t from_node = from / gpus;
    const std::int64_t to_node = to / gpus;
    Route route;
    const auto cross_node = [&](std::int64_t out, std::int64_t in) {
        route.push_back(static_cast<std::int32_t>(2 * out));
        route.push_back(static_cast<std::int32_t>(2 * in + 1));
    };
    if (from_node == to_node) {
        cross_node(from, to);
        return route;
    }
    const std::int64_t nics = nics_of(*topology_.regular);
    std::int64_t out_nic = rail_of(from);
    const std::int64_t in_nic = rail_of(to);
    if (rails_ > 1 && out_nic != in_nic) {
        const std::int64_t proxy = from_node * gpus + to % gpus;
        cross_node(from, proxy);
        out_nic = in_nic;
    }
    route.push_back(static_cast<std::int32_t>(first_nic_ + 2 * (from_node * nics + out_nic)));
    cross_tiers(from_node, to_node, rails_ > 1 ? out_nic : 0, route);
    route.push_back(static_cast<std::int32_t>(first_nic_ + 2 * (to_node * nics + in_nic) + 1));
    return route;
}

void Network::cross_tiers(std::int64_t from_node, std::int64_t to_node, std::int64_t rail,
                          Route& route) const {
    const std::int64_t from_site = from_node / nodes_per_site_;
    const std::int64_t to_site = to_node / nodes_per_site_;
    Route down;
    for (std::size_t t = 0; t < first_of_tier_.size(); ++t) {
        const std::int64_t nodes = topology_.regular->tiers[t].nodes;
        const std::int64_t per_site = divided(nodes_per_site_, nodes);
        const std::int64_t from_group = from_site * per_site + from_node % nodes_per_site_ / nodes;
        const std::int64_t to_group = to_site * per_site + to_node % nodes_per_site_ / nodes;
        if (from_group == to_group) {
            break;
        }
        const auto link = [&](std::int64_t group, std::int64_t direction) {
            return static_cast<std::int32_t>(first_of_tier_[t] + 2 * (group * rails_ + rail) +
                                             direction);
        };
        route.push_back(link(from_group, 0));
        down.push_back(link(to_group, 1));
    }
    if (from_site != to_site) {
        cross_sites(from_site, to_site, route);
    }
    route.insert(route.end(), down.rbegin(), down.rend());
}

// Link first + 2 s leads from site s to the next one, first + 2 s + 1 to the one before.
void Network::cross_sites(std::int64_t from_site, std::int64_t to_site, Route& route) const {
    const std::int64_t count = topology_.regular->sites->count;
    const std::int64_t ahead = (to_site - from_site + count) % count;
    const bool forwards = 2 * ahead <= count;
    for (std::int64_t site = from_site; site != to_site;) {
        route.push_back(static_cast<std::int32_t>(first_site_ + 2 * site + (forwards ? 0 : 1)));
        site = (site + (forwards ? 1 : count - 1)) % count;
    }
}

}  // namespace bucketwise
