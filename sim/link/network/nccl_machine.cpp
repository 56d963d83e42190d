#include "sim/link/network/nccl_machine.h"

#include <algorithm>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/link/network/nccl_constants.h"
#include "sim/link/network/topology_cost.h"

namespace bucketwise {
namespace {

// src/include/device.h: NCCL_MAX_DIRECT_ARITY + 1, and NCCL_MAX_NVLS_ARITY.
constexpr std::int64_t most_collnet_heads = 8;
std::int64_t most_nvls_heads(NcclVersion version) {
    return version < NcclVersion::v2_23 ? 8 : 32;
}

// src/transport/nvls.cc, ncclNvlsInit, and src/graph/search.cc, ncclTopoCompute.
bool has_nvls(const NcclMachine& machine, const NodeTopology& node) {
    const std::int64_t least_gpus = machine.settings.version < NcclVersion::v2_28 ? 3 : 2;
    return node.multicast && machine.nvlink &&
           machine.settings.generation >= GpuGeneration::hopper && machine.gpus >= least_gpus;
}

// GB/s: the least that a node's NICs, a group's uplinks or the line between sites can move.
double narrowest_beyond_node(const RegularTopology& topology, std::int64_t ranks) {
    const auto nics = static_cast<double>(topology.nics->per_node);
    double narrowest = nics * to_gb_per_s(topology.nics->bandwidth);
    const std::vector<TopologyLevel> levels = levels_of(topology, ranks);
    for (std::size_t i = 1; i < levels.size(); ++i) {
        narrowest = std::min(narrowest, to_gb_per_s(levels[i].group));
    }
    return narrowest;
}

// From NIC to NIC over the whole network, the farthest way.
double latency_beyond_nic_us(const RegularTopology& topology) {
    Duration latency = topology.nics->latency;
    for (const TierTopology& tier : topology.tiers) {
        latency += tier.latency;
    }
    if (topology.sites) {
        const std::int64_t farthest = topology.sites->count / 2;
        latency += farthest * topology.sites->latency;
    }
    return to_us(latency);
}

// So many channels that share these, in GB/s.
NcclGraph shared_by(std::int64_t channels, double intra, double inter) {
    const auto each = static_cast<double>(channels);
    return {channels, intra / each, inter / each};
}

// The search prefers channels that move more within a node, up to twice what they move between
// nodes, for all but rings: on two nodes a tree's channel sends over a NIC only half the time.
double at_most_twice(double inter, double intra) {
    return std::min(intra, 2 * inter);
}

// A head sums for all: the switch reads and writes its part twice, of every other GPU once.
NcclGraph nvls_of(const NcclMachine& machine, std::int64_t heads, double gpu, double per_head) {
    const double fastest =
        std::min(per_head, nccl_fastest_channel(machine.settings, machine.nodes));
    const double intra = std::min(gpu / static_cast<double>(heads + 1), fastest);
    return {heads, intra, at_most_twice(intra, fastest)};
}

// Each head sends its part to all other GPUs, and takes a part of every other head's.
double collnet_direct_intra(const NcclMachine& machine, double gpu) {
    const auto others = static_cast<double>(machine.gpus - 1);
    return gpu / (1 + static_cast<double>(machine.collnet_heads - 1) / others);
}

void search_one_node(NcclMachine& machine, std::int64_t channels, double gpu) {
    machine.ring = machine.tree = shared_by(channels, gpu, gpu);
    const std::int64_t heads = std::min(machine.gpus, most_nvls_heads(machine.settings.version));
    const double any = nccl_fastest_channel(machine.settings, machine.nodes);
    machine.nvls_graph = nvls_of(machine, heads, gpu, any);
}

void search_nodes(NcclMachine& machine, std::int64_t channels, double gpu, double network,
                  std::int64_t nics) {
    const bool alone = machine.gpus == 1;
    const double ring = alone ? network : std::min(gpu, network);
    const double tree = alone ? 2 * network : at_most_twice(ring, gpu);
    machine.ring = shared_by(channels, ring, ring);
    machine.tree = shared_by(channels, tree, ring);
    machine.same_channels = alone || nics == 1;
    const std::int64_t heads = std::min(machine.gpus, nics);
    const std::int64_t nvls = std::min(heads, most_nvls_heads(machine.settings.version));
    machine.nvls_graph = nvls_of(machine, nvls, gpu, network / static_cast<double>(nvls));
    machine.collnet_heads = std::min(heads, most_collnet_heads);
    const double inter = network / static_cast<double>(machine.collnet_heads);
    const double intra =
        alone ? 2 * inter : at_most_twice(inter, collnet_direct_intra(machine, gpu));
    machine.collnet_direct = {machine.collnet_heads, intra, inter};
}

}  // namespace

NcclMachine nccl_machine(std::int64_t ranks, const RegularTopology& topology,
                         const NcclSettings& settings) {
    invariant(ranks >= 2, "NCCL has something to choose from two ranks on");
    NcclMachine machine;
    machine.settings = settings;
    machine.ranks = ranks;
    machine.nodes = divided(ranks, topology.node.gpus);
    const bool several = machine.nodes > 1;
    machine.gpus = several ? topology.node.gpus : ranks;
    machine.nvlink = topology.node.fabric == Fabric::nvlink;
    machine.nvls = has_nvls(machine, topology.node);
    machine.collnet = settings.collnet && several;
    // src/graph/connect.cc, ncclTopoPostset, runs each channel of the search twice (and issue
    // 1041).
    const std::int64_t channels = std::max<std::int64_t>(settings.channels / 2, 1);
    const double gpu = to_gb_per_s(topology.node.bandwidth);
    if (several) {
        machine.nic_path = topology.nics->path;
        machine.network_us = latency_beyond_nic_us(topology);
        search_nodes(machine, channels, gpu, narrowest_beyond_node(topology, ranks),
                     topology.nics->per_node);
    } else {
        search_one_node(machine, channels, gpu);
    }
    return machine;
}

}  // namespace bucketwise
