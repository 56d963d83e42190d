#include "sim/link/collective.h"

#include <algorithm>
#include <array>
#include <bit>

#include "sim/base/invariant.h"
#include "sim/link/link_topology.h"
#include "sim/link/network/nccl_clock.h"
#include "sim/link/network/topology_cost.h"

namespace bucketwise {
namespace {

std::int64_t ceil_log2(std::int64_t p) {
    return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(p - 1)));
}

// Ring (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations"; NCCL's Ring). n/p bytes travel to the next neighbour at each step. The broadcast
// is a pipelined chain (NCCL).
//   steps: all-reduce 2(p-1); reduce-scatter, all-gather, broadcast p-1
//   bytes on the wire: 2(p-1)/p n; (p-1)/p n; broadcast n
//   messages: one in each step
WireCost ring(CollectiveKind kind, std::int64_t p) {
    const std::int64_t steps = rounds_of(kind) * (p - 1);
    return {steps, kind == CollectiveKind::broadcast ? Share{1, 1} : Share{steps, p}, steps};
}

// Direct (reduce-scatter by direct exchange and all-gather: Kumar et al. 2008, Thakur et al. 2005
// section "pairwise exchange"; the "butterfly" of scenarios/README.md). Every rank sends chunk i
// straight to rank i, all at once, reduces its own and sends the result to all.
//   steps: all-reduce 2; the others 1 (the p-1 sends of a round share one latency)
//   bytes on the wire: 2(p-1)/p n; (p-1)/p n; broadcast (p-1) n, all from the root
//   messages: p-1 in each step, which is what makes it grow with p
WireCost direct(CollectiveKind kind, std::int64_t p) {
    const std::int64_t sends = rounds_of(kind) * (p - 1);
    return {rounds_of(kind), {sends, kind == CollectiveKind::broadcast ? 1 : p}, sends};
}

// Recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005, "Optimization of collective
// communication operations in MPICH"). With q the largest power of two up to p, ranks beyond q fold
// their vector into a partner before and receive the result after. The all-gather is Bruck's, which
// needs no folding; the broadcast is a binomial tree.
// clang-format off
//   steps: all-reduce 2 log2 q, + 2 if q < p; reduce-scatter log2 q, + 2 if q < p;
//          others ceil(log2 p)
//   bytes on the wire: 2(q-1)/q n, + 2n if q < p; (q-1)/q n, + n + n/p if q < p;
//                      all-gather (p-1)/p n; broadcast ceil(log2 p) n
//   messages: one in each step
// clang-format on
WireCost recursive_halving_doubling(CollectiveKind kind, std::int64_t p) {
    const auto q = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(p)));
    const std::int64_t folds = q < p ? 1 : 0;
    const auto cost = [](std::int64_t steps, Share wire) { return WireCost{steps, wire, steps}; };
    switch (kind) {
        case CollectiveKind::all_reduce:
            return cost(2 * ceil_log2(q) + 2 * folds, {2 * (q - 1) + 2 * folds * q, q});
        case CollectiveKind::reduce_scatter:
            return cost(ceil_log2(q) + 2 * folds, {(q - 1) * p + folds * (p * q + q), q * p});
        case CollectiveKind::all_gather:
            return cost(ceil_log2(p), {p - 1, p});
        case CollectiveKind::broadcast:
            return cost(ceil_log2(p), {ceil_log2(p), 1});
    }
    return {};
}

// Double binary tree (Sanders, Speck and Traeff 2009, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan"; NCCL's Tree). Each of two complementary trees reduces and
// broadcasts half of the buffer, pipelined; a rank is an inner node of at most one of them. NCCL
// has no tree for all-gather and reduce-scatter and runs its ring there; so does the simulator.
// clang-format off
//   steps: all-reduce 2 ceil(log2 p); broadcast ceil(log2 p); others as the ring
//   bytes on the wire: all-reduce 2n (up n/2 twice, down n/2 to two children); broadcast n;
//                      others as the ring
//   messages: one in each step up, two in each step down, the second to the deeper child;
//             others as the ring
// clang-format on
WireCost double_binary_tree(CollectiveKind kind, std::int64_t p) {
    if (kind == CollectiveKind::all_reduce) {
        return {2 * ceil_log2(p), {2, 1}, 3 * ceil_log2(p)};
    }
    return kind == CollectiveKind::broadcast ? WireCost{ceil_log2(p), {1, 1}, 2 * ceil_log2(p)}
                                             : ring(kind, p);
}

// NVLink SHARP (NCCL's NVLS): the switch sums what it reads from all ranks and writes the sum to
// all at once. Each rank has it read all of its buffer and writes its own part of the result. The
// other collectives as the ring.
//   steps: all-reduce 2
//   bytes on the wire: (p+1)/p n
//   messages: one in each step
WireCost nvls(CollectiveKind kind, std::int64_t p) {
    return kind == CollectiveKind::all_reduce ? WireCost{2, {p + 1, p}, 2} : ring(kind, p);
}

// Ranks that take turns on each processor.
std::int64_t turns_ppm(const LinkParameters& link, std::int64_t ranks) {
    return link.processors ? std::max(undisturbed_ppm, undisturbed_ppm * ranks / *link.processors)
                           : undisturbed_ppm;
}

Duration flat_time(CollectiveKind kind, Bytes n, std::int64_t ranks, const LinkParameters& link) {
    const WireCost cost = wire_cost(kind, link.algorithm, ranks);
    if (cost.steps == 0) {
        return launch_for(kind, link);
    }
    const Segment& segment = segment_for(kind, link, n);
    const Duration moving = cost.steps * segment.latency + cost.messages * link.message +
                            transfer_time(n, segment.bandwidth, cost.wire);
    return launch_for(kind, link) + link.meeting + stretched(moving, turns_ppm(link, ranks));
}

// Hierarchical (Horovod's hierarchical all-reduce; NCCL's intra-node and rail rings). With g ranks
// on each of m nodes: reduce-scatter within the node, all-reduce of n/g among the m ranks of equal
// place on their nodes (one rail each), all-gather within the node.
//   steps: intra reduce-scatter + inter all-reduce + intra all-gather, each by its tier's algorithm
//   bytes on the wire: intra reduce-scatter and all-gather of n, inter all-reduce of n/g
// The other collectives run their two stages in the order that moves less between nodes.
Duration hierarchical_time(CollectiveKind kind, Bytes n, const RankGroup& group,
                           const LinkParameters& link) {
    invariant(link.tiers.size() == 2,
              "a hierarchical link has an intra-node and an inter-node tier");
    invariant(group.ranks % group.ranks_per_node == 0, "ranks_per_node divides ranks");
    const std::int64_t per_node = group.ranks_per_node;
    const std::int64_t nodes = group.ranks / per_node;
    const auto stage = [&](CollectiveKind stage_kind, Bytes bytes, std::size_t tier) {
        const std::int64_t ranks = tier == 0 ? per_node : nodes;
        return ranks == 1 ? Duration{0} : flat_time(stage_kind, bytes, ranks, link.tiers[tier]);
    };
    const Bytes shard = divided(n, per_node);
    switch (kind) {
        case CollectiveKind::all_reduce:
            return link.launch + stage(CollectiveKind::reduce_scatter, n, 0) +
                   stage(CollectiveKind::all_reduce, shard, 1) +
                   stage(CollectiveKind::all_gather, n, 0);
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::all_gather:
            return link.launch + stage(kind, n, 0) + stage(kind, shard, 1);
        case CollectiveKind::broadcast:
            return link.launch + stage(kind, n, 1) + stage(kind, n, 0);
    }
    return link.launch;
}

// Where messages are simulated, all-reduces are; the other collectives are half of one.
Duration on_topology(CollectiveKind kind, Bytes n, std::int64_t ranks, const LinkParameters& link) {
    if (ranks == 1) {
        return link.launch;
    }
    const Duration fixed = link.launch + link.meeting;
    if (!link.simulated.empty()) {
        const Duration all_reduce = interpolate(link.simulated, n);
        return fixed + (kind == CollectiveKind::all_reduce ? all_reduce : all_reduce / 2);
    }
    const RegularTopology& topology = *link.topology->regular;
    if (link.algorithm == Algorithm::nccl) {
        return fixed + nccl_time(kind, n, ranks, topology, *link.topology->nccl, link.ctas);
    }
    return fixed + topology_time(kind, link.algorithm, n, ranks, topology);
}

}  // namespace

WireCost wire_cost(CollectiveKind kind, Algorithm algorithm, std::int64_t ranks) {
    invariant(ranks >= 1, "a collective needs a rank");
    if (ranks == 1) {
        return {};
    }
    using Cost = WireCost (*)(CollectiveKind, std::int64_t);
    constexpr std::array<Cost, every<Algorithm>.size()> costs{
        ring, direct, recursive_halving_doubling, double_binary_tree, nullptr, nvls, nullptr};
    const Cost cost = costs[static_cast<std::size_t>(algorithm)];
    invariant(cost != nullptr, "this algorithm has no single pair of steps and bytes");
    return cost(kind, ranks);
}

Duration collective_time(CollectiveKind kind, Bytes n, const RankGroup& group,
                         const LinkParameters& link) {
    if (link.topology) {
        return on_topology(kind, n, group.ranks, link);
    }
    return link.algorithm == Algorithm::hierarchical ? hierarchical_time(kind, n, group, link)
                                                     : flat_time(kind, n, group.ranks, link);
}

}  // namespace bucketwise
