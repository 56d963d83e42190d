#include "sim/link/network/nccl_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "sim/base/invariant.h"
#include "sim/link/network/topology_cost.h"

namespace bucketwise {
namespace {

// Microseconds.
using ByProtocol = std::array<double, every<NcclProtocol>.size()>;

struct Latencies {
    ByProtocol base;
    ByProtocol nvlink;
    ByProtocol pcie;
    ByProtocol net;
};
constexpr Latencies ring_latencies{
    {6.6, 14.0, 8.4}, {0.6, 1.9, 3.4}, {1.0, 2.5, 5.7}, {2.7, 4.0, 14.0}};
constexpr Latencies tree_latencies{
    {6.8, 14.0, 8.4}, {0.6, 1.25, 4.0}, {1.0, 1.9, 4.0}, {5.0, 8.5, 14.0}};
constexpr double nvls_nvlink_us = 25.0;
constexpr double nvls_tree_net_us = 20.9;

// Bandwidth in GB/s that LL can reach in one node.
double most_ll_bandwidth(GpuGeneration generation) {
    constexpr std::array<double, every<GpuGeneration>.size()> most{39, 87.7, 141, 282};
    return most[static_cast<std::size_t>(generation)];
}

// What one channel can move with LL128, in GB/s: on one node, two, or more. Volta's are Ampere's
// and Blackwell's Hopper's, the nearest that are known here.
struct ChannelLimits {
    std::array<double, 3> ring;
    std::array<double, 3> tree;
};
ChannelLimits channel_limits(GpuGeneration generation) {
    const bool older = generation == GpuGeneration::volta || generation == GpuGeneration::ampere;
    return older ? ChannelLimits{{20, 20, 20}, {24, 23.6, 17.8}}
                 : ChannelLimits{{36.7, 36.7, 36.7}, {38.7, 41.4, 36}};
}

double nvls_efficiency(GpuGeneration generation) {
    return generation == GpuGeneration::blackwell ? 0.74 : 0.85;
}

// One pair's latency in microseconds and algorithm bandwidth in GB/s.
struct Cost {
    double latency_us = 0;
    double gb_per_s = 0;
};

class NcclModel {
  public:
    NcclModel(CollectiveKind kind, Bytes bytes, std::int64_t ranks, const RegularTopology& topology,
              const NcclSettings& settings)
        : kind_(kind),
          bytes_(static_cast<double>(bytes.count)),
          ranks_(static_cast<double>(ranks)),
          nodes_(static_cast<double>(divided(ranks, topology.node.gpus))),
          per_node_(ranks_ / nodes_),
          topology_(topology),
          settings_(settings) {
        bus_ = to_gb_per_s(topology.node.bandwidth);
        if (nodes_ > 1) {
            network_ = narrowest_gb_per_s(topology, ranks);
            bus_ = per_node_ > 1 ? std::min(bus_, network_) : network_;
        }
        network_us_ = nodes_ > 1 ? latency_beyond_nic_us() : 0;
    }

    [[nodiscard]] std::optional<Cost> cost(NcclAlgorithm algorithm, NcclProtocol protocol) const {
        if (algorithm == NcclAlgorithm::ring) {
            return ring(protocol);
        }
        if (kind_ != CollectiveKind::all_reduce) {
            return std::nullopt;
        }
        return algorithm == NcclAlgorithm::tree ? tree(protocol) : nvls(algorithm, protocol);
    }

    [[nodiscard]] Duration time(const Cost& cost) const {
        const double us = cost.latency_us + bytes_ / (cost.gb_per_s * 1e3);
        return duration_from_us(std::min(us, to_us(longest_duration)));
    }

  private:
    // The least that a node's NICs, a group's uplinks or the line between sites can move.
    static double narrowest_gb_per_s(const RegularTopology& topology, std::int64_t ranks) {
        const auto nics = static_cast<double>(topology.nics->per_node);
        double narrowest = nics * to_gb_per_s(topology.nics->bandwidth);
        const std::vector<TopologyLevel> levels = levels_of(topology, ranks);
        for (std::size_t i = 1; i < levels.size(); ++i) {
            narrowest = std::min(narrowest, to_gb_per_s(levels[i].group));
        }
        return narrowest;
    }

    // From NIC to NIC over the whole network, the farthest way.
    [[nodiscard]] double latency_beyond_nic_us() const {
        Duration latency = topology_.nics->latency;
        for (const TierTopology& tier : topology_.tiers) {
            latency += tier.latency;
        }
        if (topology_.sites) {
            const std::int64_t farthest = topology_.sites->count / 2;
            latency += farthest * topology_.sites->latency;
        }
        return to_us(latency);
    }

    // From GPU to GPU of one node, and of two.
    [[nodiscard]] double intra_us(const Latencies& latencies, std::size_t p) const {
        return topology_.node.fabric == Fabric::nvlink ? latencies.nvlink[p] : latencies.pcie[p];
    }
    [[nodiscard]] double inter_us(const Latencies& latencies, NcclProtocol protocol) const {
        const double times = protocol == NcclProtocol::simple ? 2 : 1;
        return latencies.net[static_cast<std::size_t>(protocol)] + times * network_us_;
    }

    [[nodiscard]] std::size_t node_class() const { return nodes_ <= 1 ? 0 : nodes_ <= 2 ? 1 : 2; }

    [[nodiscard]] double channels() const { return static_cast<double>(settings_.channels); }

    [[nodiscard]] Cost ring(NcclProtocol protocol) const {
        const auto p = static_cast<std::size_t>(protocol);
        const auto rounds = static_cast<double>(rounds_of(kind_));
        const double steps = rounds * (ranks_ - 1);
        const double steps_between_nodes = nodes_ > 1 ? rounds * (nodes_ - 1) : 0;
        double intra = intra_us(ring_latencies, p);
        if (nodes_ > 1) {
            intra = std::max(intra, protocol == NcclProtocol::simple ? 3.0 : 1.0);
        }
        double latency = ring_latencies.base[p] + (steps - steps_between_nodes) * intra +
                         steps_between_nodes * inter_us(ring_latencies, protocol);
        double bus = bus_;
        if (protocol == NcclProtocol::ll) {
            bus = std::min(bus / 2, most_ll_bandwidth(settings_.generation));
        } else if (protocol == NcclProtocol::ll128) {
            const ChannelLimits limits = channel_limits(settings_.generation);
            bus = std::min(bus * 0.92, channels() * limits.ring[node_class()]);
        } else if (nodes_ > 1 && bytes_ / (channels() * ranks_) >= 64) {
            latency *= 1.4;
        }
        // In a broadcast every rank passes on all of it.
        const double share = kind_ == CollectiveKind::broadcast ? 1 : steps / ranks_;
        return {latency, bus / share};
    }

    [[nodiscard]] Cost tree(NcclProtocol protocol) const {
        const auto p = static_cast<std::size_t>(protocol);
        const double latency =
            tree_latencies.base[p] + 2 * ((per_node_ - 1) * intra_us(tree_latencies, p) +
                                          std::log2(nodes_) * inter_us(tree_latencies, protocol));
        const ChannelLimits limits = channel_limits(settings_.generation);
        double bus = std::min(bus_ * 0.92, channels() * limits.tree[node_class()]);
        if (protocol == NcclProtocol::ll) {
            bus = std::min(bus / 3.8, most_ll_bandwidth(settings_.generation));
        } else if (protocol == NcclProtocol::ll128) {
            bus *= nodes_ > 1 ? 120.0 / 128.0 : 7.0 / 9.0;
        }
        return {latency, bus / 2};
    }

    // NVSwitch sums what it reads and writes to all at once; between nodes as a tree.
    [[nodiscard]] std::optional<Cost> nvls(NcclAlgorithm algorithm, NcclProtocol protocol) const {
        const bool has_switch = topology_.node.multicast && per_node_ > 1;
        const bool right_size = (nodes_ > 1) == (algorithm == NcclAlgorithm::nvls_tree);
        if (!has_switch || !right_size || protocol != NcclProtocol::simple) {
            return std::nullopt;
        }
        const double bus =
            to_gb_per_s(topology_.node.bandwidth) * nvls_efficiency(settings_.generation);
        if (algorithm == NcclAlgorithm::nvls) {
            // Each GPU's own part leaves it once, and all parts once to be summed.
            return Cost{nvls_nvlink_us, bus * ranks_ / (ranks_ + 1)};
        }
        return Cost{nvls_nvlink_us + 2 * std::log2(nodes_) * (nvls_tree_net_us + network_us_),
                    std::min(bus * per_node_ / (per_node_ + 1), network_ / 2)};
    }

    CollectiveKind kind_;
    double bytes_;
    double ranks_;
    double nodes_;
    double per_node_;
    const RegularTopology& topology_;
    const NcclSettings& settings_;
    double bus_ = 0;         // GB/s of all channels
    double network_ = 0;     // GB/s between nodes
    double network_us_ = 0;  // of NICs and switches
};

}  // namespace

std::vector<NcclEstimate> nccl_estimates(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                                         const RegularTopology& topology,
                                         const NcclSettings& settings) {
    invariant(ranks >= 2, "NCCL has something to choose from two ranks on");
    const NcclModel model(kind, bytes, ranks, topology, settings);
    std::vector<NcclEstimate> estimates;
    for (const NcclAlgorithm algorithm : every<NcclAlgorithm>) {
        for (const NcclProtocol protocol : every<NcclProtocol>) {
            if (const auto cost = model.cost(algorithm, protocol)) {
                estimates.push_back({algorithm, protocol, model.time(*cost)});
            }
        }
    }
    std::stable_sort(estimates.begin(), estimates.end(),
                     [](const auto& a, const auto& b) { return a.time < b.time; });
    return estimates;
}

}  // namespace bucketwise
