#include "sim/link/network/topology_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// Nothing lasts longer than longest_duration, however often it is repeated or added up.
Duration repeated(std::int64_t times, Duration time) {
    const double most = static_cast<double>(longest_duration.count());
    const bool fits = static_cast<double>(times) * static_cast<double>(time.count()) < most;
    return fits ? times * time : longest_duration;
}
Duration sum(Duration a, Duration b) {
    return std::min(a + b, longest_duration);
}

// At least a byte and at most an exabyte a second, which no bundle of links comes near.
BytesPerSecond per(BytesPerSecond bandwidth, double share) {
    constexpr double most = 1e18;
    return {std::llround(std::clamp(static_cast<double>(bandwidth.count) * share, 1.0, most))};
}

// The lowest level whose groups hold every pair of ranks that differ in the bit `distance` only.
const TopologyLevel& level_for(const std::vector<TopologyLevel>& levels, std::int64_t distance) {
    const auto found = std::find_if(levels.begin(), levels.end(), [&](const TopologyLevel& level) {
        return level.size % (2 * distance) == 0;
    });
    return found == levels.end() ? levels.back() : *found;
}

// Hops of a ring through all ranks in order that need this level, and no higher one.
std::vector<std::int64_t> hops_by_level(const std::vector<TopologyLevel>& levels,
                                        std::int64_t ranks) {
    std::vector<std::int64_t> hops;
    std::int64_t groups_below = ranks;
    for (const TopologyLevel& level : levels) {
        const std::int64_t groups = divided(ranks, level.size);
        hops.push_back(groups_below - (groups > 1 ? groups : 0));
        groups_below = groups;
    }
    return hops;
}

// The latency of `rounds` times around but for as many hops, the cheapest ones, and the bandwidth
// of the narrowest hop.
Duration ring_time(std::int64_t rounds, Bytes bytes, Share wire, std::int64_t ranks,
                   const std::vector<TopologyLevel>& levels) {
    const std::vector<std::int64_t> hops = hops_by_level(levels, ranks);
    Duration latency{0};
    Duration cheapest = Duration::max();
    BytesPerSecond narrowest{std::numeric_limits<std::int64_t>::max()};
    for (std::size_t i = 0; i < levels.size(); ++i) {
        if (hops[i] > 0) {
            latency = sum(latency, repeated(hops[i], levels[i].latency));
            cheapest = std::min(cheapest, levels[i].latency);
            narrowest = std::min(narrowest, levels[i].group);
        }
    }
    return sum(repeated(rounds, latency - cheapest), transfer_time(bytes, narrowest, wire));
}

// Reduce-scatter up the levels and all-gather down, or one of them, each level a ring among groups
// of the level below with all ranks of a group taking part at once. `below`: ranks of a group below
// the first level.
Duration hierarchical_time(std::int64_t passes, Bytes bytes, std::span<const TopologyLevel> levels,
                           std::int64_t below = 1) {
    Duration time{0};
    for (const TopologyLevel& level : levels) {
        const std::int64_t size = level.size / below;
        if (size > 1) {
            const std::int64_t steps = passes * (size - 1);
            bytes = divided(bytes, size);
            time = sum(time, sum(repeated(steps, level.latency),
                                 transfer_time(bytes, level.each, {steps, 1})));
        }
        below = level.size;
    }
    return time;
}

// Every rank sends a piece to every other at once: as long as the level takes whose links have most
// to carry. Around a ring of sites a piece crosses several links.
Duration direct_time(std::int64_t rounds, Bytes bytes, std::int64_t ranks,
                     const RegularTopology& topology, const std::vector<TopologyLevel>& levels) {
    const Bytes piece = divided(bytes, ranks);
    const bool between_nodes = levels.size() > 1;
    const bool between_sites = between_nodes && topology.sites;
    Duration longest{0};
    std::int64_t below = 1;
    for (std::size_t i = 0; i < levels.size(); ++i) {
        std::int64_t crossing = ranks - below;  // pieces of one rank that leave its group
        if (between_sites && i + 1 == levels.size()) {
            // Each pair of sites d apart crosses d links forwards; what ties goes forwards.
            const std::int64_t far = topology.sites->count / 2;
            crossing = below * far * (far + 1) / 2;
        }
        if (i == 0) {
            crossing = levels[0].size - 1;
        }
        longest = std::max(longest, transfer_time(piece, levels[i].each, {crossing, 1}));
        below = levels[i].size;
    }
    Duration farthest = levels.back().latency;
    if (between_sites) {
        farthest += (topology.sites->count / 2 - 1) * topology.sites->latency;
    }
    if (between_nodes) {
        const NicTopology& nics = *topology.nics;
        const double share =
            static_cast<double>(nics.per_node) / static_cast<double>(topology.node.gpus);
        longest = std::max(longest, transfer_time(piece, per(nics.bandwidth, share),
                                                  {ranks - levels.front().size, 1}));
        // To another rail, across the node first.
        farthest += nics.rails && nics.per_node > 1 ? topology.node.latency : Duration{0};
    }
    return repeated(rounds, sum(farthest, longest));
}

Duration exchange_time(Bytes bytes, std::int64_t ranks, const std::vector<TopologyLevel>& levels) {
    const auto core = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(ranks)));
    Duration time{0};
    Bytes piece = bytes;
    for (std::int64_t distance = 1; distance < core; distance *= 2) {
        piece = divided(piece, 2);
        const TopologyLevel& level = level_for(levels, distance);
        time = sum(time, repeated(2, sum(level.latency, transfer_time(piece, level.each))));
    }
    if (core < ranks) {
        const TopologyLevel& level = level_for(levels, core);
        time = sum(time, repeated(2, sum(level.latency, transfer_time(bytes, level.each))));
    }
    return time;
}

// Pipelined, as NCCL counts it: chains within a node, two trees between nodes.
Duration tree_time(Bytes bytes, std::int64_t ranks, const std::vector<TopologyLevel>& levels) {
    const std::int64_t per_node = levels.front().size;
    const std::int64_t nodes = divided(ranks, per_node);
    const auto depth =
        static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(nodes - 1)));
    BytesPerSecond narrowest = per_node > 1 ? levels.front().group : levels.back().group;
    for (const TopologyLevel& level : levels) {
        if (level.size > per_node) {
            narrowest = std::min(narrowest, level.group);
        }
    }
    const Duration latency =
        sum(repeated(per_node - 1, levels.front().latency), repeated(depth, levels.back().latency));
    return sum(repeated(2, latency), transfer_time(bytes, narrowest, {2, 1}));
}

// The switch of a node sums what it reads and writes to all at once: every GPU sends all of its
// buffer once and its own part of the result. Between nodes a ring of the parts.
Duration nvls_time(Bytes bytes, std::span<const TopologyLevel> levels) {
    const std::int64_t per_node = levels.front().size;
    Duration time{0};
    if (per_node > 1) {
        time += 2 * levels.front().latency +
                transfer_time(bytes, levels.front().each, {per_node + 1, per_node});
    }
    return sum(time, hierarchical_time(2, divided(bytes, per_node), levels.subspan(1), per_node));
}

// Ranks after which the network looks the same again: 1 within a node, a node's within the only
// tier, else those of the largest group that has equals. 0: none known.
std::int64_t period_of(const std::vector<TopologyLevel>& levels, std::int64_t ranks) {
    std::int64_t period = 1;
    for (const TopologyLevel& level : levels) {
        if (level.size < ranks) {
            period = level.size;
        }
    }
    return ranks % period == 0 ? period : 0;
}

std::uint64_t most_messages(Algorithm algorithm) {
    if (algorithm == Algorithm::direct) {
        return most_direct_messages;
    }
    const bool by_trees = algorithm == Algorithm::recursive_halving_doubling ||
                          algorithm == Algorithm::double_binary_tree;
    return by_trees ? most_tree_messages : most_ring_messages;
}

}  // namespace

std::vector<TopologyLevel> levels_of(const RegularTopology& topology, std::int64_t ranks) {
    const std::int64_t per_node = std::min(topology.node.gpus, ranks);
    const std::int64_t nodes = divided(ranks, per_node);
    std::vector<TopologyLevel> levels{
        {per_node, topology.node.latency, topology.node.bandwidth, topology.node.bandwidth}};
    if (nodes == 1) {
        return levels;
    }
    const NicTopology& nics = *topology.nics;
    const std::int64_t sites = topology.sites ? topology.sites->count : 1;
    const std::int64_t nodes_per_site = nodes / sites;
    const auto nic_count = static_cast<double>(nics.per_node);
    Duration latency = nics.latency;
    std::int64_t below = 1;  // nodes
    double left = 1;         // of the NICs' bandwidth
    const auto each_of_nics = [&] {
        return per(nics.bandwidth, left * nic_count / static_cast<double>(topology.node.gpus));
    };
    const auto add = [&](std::int64_t size) {
        levels.push_back({size * per_node, latency, each_of_nics(),
                          per(nics.bandwidth, nic_count * left * static_cast<double>(below))});
        // Other traffic through a node's own fabric is never narrower in a sound machine.
        below = size;
    };
    for (const TierTopology& tier : topology.tiers) {
        latency += tier.latency;
        const std::int64_t size = std::min(tier.nodes, nodes_per_site);
        if (size > below) {
            add(size);
        }
        left /= tier.oversubscription;
    }
    if (topology.tiers.empty() && nodes_per_site > 1) {
        add(nodes_per_site);
    }
    if (topology.sites) {
        latency += topology.sites->latency;
        const auto site_nodes = static_cast<double>(nodes_per_site);
        const BytesPerSecond site = topology.sites->bandwidth;
        levels.push_back(
            {ranks, latency,
             std::min(per(site, 1 / (site_nodes * static_cast<double>(per_node))), each_of_nics()),
             std::min(site, per(nics.bandwidth, nic_count * left * site_nodes))});
    }
    return levels;
}

std::vector<std::int64_t> group_sizes(const RegularTopology& topology, std::int64_t ranks) {
    std::vector<std::int64_t> sizes;
    std::int64_t below = 1;
    for (const TopologyLevel& level : levels_of(topology, ranks)) {
        invariant(level.size % below == 0, "each level groups whole groups");
        sizes.push_back(level.size / below);
        below = level.size;
    }
    return sizes;
}

Duration topology_time(CollectiveKind kind, Algorithm algorithm, Bytes bytes, std::int64_t ranks,
                       const RegularTopology& topology) {
    if (ranks == 1) {
        return Duration{0};
    }
    const std::vector<TopologyLevel> levels = levels_of(topology, ranks);
    const std::int64_t rounds = rounds_of(kind);
    if (kind == CollectiveKind::broadcast) {
        return ring_time(1, bytes, {1, 1}, ranks, levels);
    }
    if (algorithm == Algorithm::hierarchical) {
        return hierarchical_time(rounds, bytes, levels);
    }
    if (algorithm == Algorithm::direct) {
        return direct_time(rounds, bytes, ranks, topology, levels);
    }
    if (kind == CollectiveKind::all_reduce) {
        if (algorithm == Algorithm::recursive_halving_doubling) {
            return exchange_time(bytes, ranks, levels);
        }
        if (algorithm == Algorithm::double_binary_tree) {
            return tree_time(bytes, ranks, levels);
        }
        if (algorithm == Algorithm::nvls) {
            return nvls_time(bytes, levels);
        }
    }
    return ring_time(rounds, bytes, {rounds * (ranks - 1), ranks}, ranks, levels);
}

Network network_for(Algorithm algorithm, const Topology& topology, std::int64_t ranks) {
    const bool one_way_out =
        algorithm == Algorithm::ring || algorithm == Algorithm::double_binary_tree;
    if (!one_way_out || !topology.regular || !topology.regular->nics) {
        return {topology, ranks};
    }
    Topology bonded = topology;
    NicTopology& nics = *bonded.regular->nics;
    nics.bandwidth.count *= nics.per_node;
    nics.per_node = 1;
    nics.rails = false;
    return {bonded, ranks};
}

ScheduleRequest schedule_on(CollectiveKind kind, Algorithm algorithm, Bytes bytes,
                            std::int64_t ranks, const Topology& topology, bool classes) {
    ScheduleRequest request{.kind = kind, .algorithm = algorithm, .bytes = bytes, .ranks = ranks};
    if (topology.regular && algorithm == Algorithm::hierarchical) {
        request.levels = group_sizes(*topology.regular, ranks);
    }
    const bool uneven = topology.graph || levels_of(*topology.regular, ranks).size() > 1;
    if (topology.regular && algorithm == Algorithm::double_binary_tree) {
        const std::int64_t per_node = std::min(topology.regular->node.gpus, ranks);
        request.levels = {per_node, ranks / per_node};
    }
    if (algorithm == Algorithm::double_binary_tree) {
        request.chunks = tree_pieces;
    } else if (algorithm == Algorithm::ring && uneven) {
        request.chunks = ring_pieces;
    }
    const bool rings = algorithm == Algorithm::ring || algorithm == Algorithm::hierarchical;
    if (classes && rings && !topology.irregular()) {
        request.classes = period_of(levels_of(*topology.regular, ranks), ranks);
    }
    return request;
}

std::optional<TopologyFault> check_levels(const RegularTopology& topology, std::int64_t ranks) {
    std::int64_t below = 1;
    for (const TopologyLevel& level : levels_of(topology, ranks)) {
        if (level.size % below != 0) {
            return TopologyFault{
                "/topology/tiers",
                fmt::format("tiers whose groups are full, each of {} ranks, for an algorithm with "
                            "a ring on each level",
                            below),
                fmt::format("a last one of {}", level.size % below)};
        }
        below = level.size;
    }
    return std::nullopt;
}

std::uint64_t messages_of(const ScheduleRequest& request) {
    const auto ranks = static_cast<std::uint64_t>(request.ranks);
    const auto pieces = static_cast<std::uint64_t>(request.chunks);
    const auto rounds = static_cast<std::uint64_t>(rounds_of(request.kind));
    std::uint64_t steps = ranks - 1;
    if (request.algorithm == Algorithm::hierarchical) {
        steps = 0;
        for (const std::int64_t size : request.levels) {
            steps += static_cast<std::uint64_t>(size - 1);
        }
    } else if (request.algorithm == Algorithm::recursive_halving_doubling) {
        steps = std::bit_width(ranks);
    } else if (request.algorithm == Algorithm::double_binary_tree) {
        steps = 2;
    }
    const auto acting = request.classes == 0 ? ranks : static_cast<std::uint64_t>(request.classes);
    return acting * steps * rounds * pieces;
}

std::optional<TopologyFault> check_messages(const ScheduleRequest& request) {
    const std::uint64_t most = most_messages(request.algorithm);
    const std::uint64_t messages = messages_of(request);
    if (messages <= most) {
        return std::nullopt;
    }
    return TopologyFault{
        "/topology",
        fmt::format("a collective of at most {} messages where they are simulated one by one",
                    most),
        std::to_string(messages)};
}

TopologyFault too_much_sharing() {
    return {"/topology", "a network whose links are shared out in some seconds",
            "one where too many messages share links for that, each at a time of its own"};
}

}  // namespace bucketwise
