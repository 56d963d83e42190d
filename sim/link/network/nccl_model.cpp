#include "sim/link/network/nccl_model.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace bucketwise {
namespace {

using enum NcclVersion;

Duration shortened(double us) {
    return duration_from_us(std::min(us, to_us(longest_duration)));
}

// The result of ncclTopoTuneModel for a machine and one kind of collective.
class NcclModel {
  public:
    NcclModel(CollectiveKind kind, const NcclMachine& machine)
        : kind_(kind),
          machine_(machine),
          settings_(machine.settings),
          version_(machine.settings.version),
          limits_(nccl_limits(machine.settings, machine.nodes)),
          ranks_(static_cast<double>(machine.ranks)),
          nodes_(static_cast<double>(machine.nodes)) {}

    // Empty: this pair does not run, or moves nothing.
    [[nodiscard]] std::optional<NcclEstimate> estimate(NcclAlgorithm algorithm,
                                                       NcclProtocol protocol, Bytes bytes) const {
        if (!runs(algorithm, protocol)) {
            return std::nullopt;
        }
        const double gb_per_s =
            algorithm_bandwidth(algorithm, protocol) * share_of_size(algorithm, protocol, bytes);
        if (gb_per_s <= 0) {
            return std::nullopt;
        }
        const double latency =
            latency_us(algorithm, protocol) * plateau(algorithm, protocol, bytes);
        const double us = latency + static_cast<double>(bytes.count) / (gb_per_s * 1e3);
        return NcclEstimate{algorithm, protocol, shortened(us), shortened(latency)};
    }

  private:
    // --- what runs ---

    [[nodiscard]] bool several() const { return machine_.nodes > 1; }

    [[nodiscard]] bool runs(NcclAlgorithm algorithm, NcclProtocol protocol) const {
        if (protocol == NcclProtocol::ll128 && !ll128_runs()) {
            return false;
        }
        if (algorithm == NcclAlgorithm::ring) {
            return true;
        }
        if (algorithm == NcclAlgorithm::tree) {
            return kind_ == CollectiveKind::all_reduce;
        }
        if (protocol != NcclProtocol::simple || kind_ == CollectiveKind::broadcast) {
            return false;
        }
        if (algorithm == NcclAlgorithm::pat) {
            return pat_runs();
        }
        return is_nvls(algorithm) ? nvls_runs(algorithm) : collnet_runs(algorithm);
    }

    // The paths between GPUs are NVLink's, or there is one GPU, and those to NICs are short enough.
    // Up to 2.24 only three capabilities had it, since 2.27 all from 70 on.
    [[nodiscard]] bool ll128_runs() const {
        const std::int64_t capability = compute_capability_of(settings_);
        const bool tested = capability == 70 || capability == 80 || capability == 90;
        return (machine_.gpus == 1 || machine_.nvlink) && (version_ >= v2_27 || tested) &&
               (machine_.nic_path == NicPath::pxb || ll128_crosses_c2c());
    }

    // NCCL_LL128_C2C. Before it a way through a Grace counted as PATH_PHB.
    [[nodiscard]] bool ll128_crosses_c2c() const {
        return machine_.nic_path == NicPath::p2c && version_ >= v2_27 &&
               settings_.generation >= GpuGeneration::hopper;
    }

    // ncclPatEnable: one GPU a node.
    [[nodiscard]] bool pat_runs() const {
        return version_ >= v2_23 && scatters(kind_) && machine_.nodes == machine_.ranks;
    }

    [[nodiscard]] bool nvls_runs(NcclAlgorithm algorithm) const {
        if (!machine_.nvls || (version_ >= v2_28 && machine_.nvls_graph.channels < 2)) {
            return false;
        }
        if (algorithm == NcclAlgorithm::nvls_tree) {
            return several() && kind_ == CollectiveKind::all_reduce;
        }
        if (several() && !machine_.collnet) {
            return false;
        }
        return !scatters(kind_) || nvls_scatters();
    }

    // From 2.19 on; on several nodes from 2.27 on.
    [[nodiscard]] bool nvls_scatters() const {
        constexpr std::int64_t most_gpus = 32;  // NCCL_MAX_NVLS_ARITY
        return version_ >= v2_20 && machine_.gpus <= most_gpus &&
               (!several() || (version_ >= v2_27 && nic_for_each()));
    }

    [[nodiscard]] bool nic_for_each() const { return machine_.gpus <= machine_.collnet_heads; }

    [[nodiscard]] bool collnet_runs(NcclAlgorithm algorithm) const {
        constexpr std::int64_t most_gpus = 8;  // NCCL_MAX_DIRECT_ARITY + 1
        if (!machine_.collnet || machine_.gpus > most_gpus) {
            return false;
        }
        if (algorithm == NcclAlgorithm::collnet_chain) {
            return !scatters(kind_);
        }
        return machine_.nvlink && (!scatters(kind_) || (version_ >= v2_20 && nic_for_each()));
    }

    // --- bandwidth, GB/s ---

    [[nodiscard]] const NcclGraph& graph(NcclAlgorithm algorithm) const {
        switch (algorithm) {
            case NcclAlgorithm::ring:
                return machine_.ring;
            case NcclAlgorithm::collnet_direct:
                return machine_.collnet_direct;
            case NcclAlgorithm::nvls:
            case NcclAlgorithm::nvls_tree:
                return machine_.nvls_graph;
            case NcclAlgorithm::tree:
            case NcclAlgorithm::collnet_chain:
            case NcclAlgorithm::pat:
                break;
        }
        return machine_.tree;
    }

    [[nodiscard]] double algorithm_bandwidth(NcclAlgorithm algorithm, NcclProtocol protocol) const {
        switch (algorithm) {
            case NcclAlgorithm::ring:
                return ring_bus(protocol) * of_wire();
            case NcclAlgorithm::tree:
                return tree_bus(protocol) / 2;
            case NcclAlgorithm::collnet_direct:
                return scatters(kind_) ? collnet_scatter_bus() : collnet_direct_bus() / 2;
            case NcclAlgorithm::collnet_chain:
                return all_channels(algorithm, true) / 2;
            case NcclAlgorithm::nvls:
            case NcclAlgorithm::nvls_tree:
                return nvls_bus(algorithm) * nvls_of_wire(algorithm);
            case NcclAlgorithm::pat:
                break;
        }
        return all_channels(NcclAlgorithm::pat, !beyond_two()) * (version_ < v2_27 ? 0.85 : 0.75);
    }

    [[nodiscard]] bool beyond_two() const { return machine_.nodes > 2; }

    [[nodiscard]] double all_channels(NcclAlgorithm algorithm, bool intra) const {
        const NcclGraph& found = graph(algorithm);
        return static_cast<double>(found.channels) *
               (intra ? found.intra_gb_per_s : found.inter_gb_per_s);
    }

    // The buffer over what a rank of a ring puts on the wire; a broadcast passes all of it on.
    [[nodiscard]] double of_wire() const {
        return kind_ == CollectiveKind::broadcast
                   ? 1
                   : ranks_ / (static_cast<double>(rounds_of(kind_)) * (ranks_ - 1));
    }

    [[nodiscard]] double ring_bus(NcclProtocol protocol) const {
        const double bus = all_channels(NcclAlgorithm::ring, !beyond_two());
        const auto channels = static_cast<double>(machine_.ring.channels);
        if (protocol == NcclProtocol::ll) {
            return std::min(bus * ring_ll_share(), limits_.ll);
        }
        if (protocol == NcclProtocol::ll128) {
            const bool halved = version_ < v2_23 && machine_.per_node() < 2;
            return std::min(bus * (halved ? 0.7 : 0.92), channels * limits_.ring_ll128);
        }
        return bus;
    }

    // Half of what is sent is flags; up to 2.20 more was thought to be lost.
    [[nodiscard]] double ring_ll_share() const {
        if (version_ >= v2_23) {
            return 0.5;
        }
        return several() || kind_ == CollectiveKind::all_reduce ? 0.25 : 1.0 / 3;
    }

    [[nodiscard]] double tree_bus(NcclProtocol protocol) const {
        const auto channels = static_cast<double>(machine_.tree.channels);
        double bus = std::min(all_channels(NcclAlgorithm::tree, !beyond_two()) * 0.92,
                              channels * limits_.tree);
        if (protocol == NcclProtocol::ll) {
            bus = std::min(bus / 3.8, limits_.ll);
        } else if (protocol == NcclProtocol::ll128) {
            const double share = several() ? 120.0 / 128 : 7.0 / 9;
            bus = std::min(bus * share, channels * limits_.tree_ll128);
        }
        // One GPU a node: all of a tree's traffic is the same GPU's (NCCL_TOPO_PATTERN_TREE).
        return several() && machine_.gpus == 1 ? bus * 0.85 : bus;
    }

    // NICs that GPUs share slow it; those that are more than the GPUs are not full.
    [[nodiscard]] double collnet_direct_bus() const {
        const auto channels = static_cast<double>(machine_.collnet_direct.channels);
        const double gpus_of_channel = machine_.per_node() / channels;
        const double bus = all_channels(NcclAlgorithm::collnet_direct, true) /
                           (gpus_of_channel - (gpus_of_channel - 1) / 2);
        return settings_.generation >= GpuGeneration::hopper ? bus * 0.85 : bus;
    }

    [[nodiscard]] double collnet_scatter_bus() const {
        const NcclGraph& found = machine_.collnet_direct;
        const double per_node = machine_.per_node();
        if (version_ >= v2_27) {
            return per_node * std::min(found.intra_gb_per_s, 0.9 * found.inter_gb_per_s);
        }
        // 0.95 with one GPU a node, 0.85 with eight.
        const double weight = (per_node - 1) / 7;
        return per_node * found.intra_gb_per_s * (weight * 0.85 + (1 - weight) * 0.95);
    }

    [[nodiscard]] double nvls_bus(NcclAlgorithm algorithm) const {
        return static_cast<double>(machine_.nvls_graph.channels) *
               (version_ >= v2_28 ? nvls_channel(algorithm) : nvls_channel_before(algorithm));
    }

    // From 2.28 on. An all-reduce has both of its halves under way at once.
    [[nodiscard]] double nvls_channel(NcclAlgorithm algorithm) const {
        const NcclGraph& found = machine_.nvls_graph;
        const auto channels = static_cast<double>(found.channels);
        const double twice = kind_ == CollectiveKind::all_reduce
                                 ? 2
                                 : (machine_.per_node() - 1) / machine_.per_node();
        const double intra = found.intra_gb_per_s * nccl_nvls_efficiency(settings_.generation) *
                             (channels - 1) / channels * twice;
        if (algorithm == NcclAlgorithm::nvls) {
            return std::min(intra, found.inter_gb_per_s);
        }
        const double inter = found.inter_gb_per_s * (beyond_two() ? 1 : 2);
        return std::min({intra, inter, limits_.nvls_tree});
    }

    [[nodiscard]] double nvls_channel_before(NcclAlgorithm algorithm) const {
        const double intra = machine_.nvls_graph.intra_gb_per_s;
        const double inter = machine_.nvls_graph.inter_gb_per_s;
        if (version_ == v2_18) {
            return beyond_two() ? inter : intra;
        }
        if (algorithm == NcclAlgorithm::nvls_tree) {
            return std::min(intra, beyond_two() ? inter / 2 : inter);
        }
        if (version_ == v2_27 && scatters(kind_)) {
            const double per_node = machine_.per_node();
            return std::min(intra * (per_node - 1) / per_node, 0.9 * inter);
        }
        return std::min(intra, inter);
    }

    [[nodiscard]] double nvls_of_wire(NcclAlgorithm algorithm) const {
        constexpr double before_2_28 = 5.0 / 6;
        if (scatters(kind_)) {
            return version_ == v2_20 ? before_2_28 : 1;
        }
        if (version_ >= v2_28) {
            return of_wire();
        }
        return version_ == v2_18 && algorithm == NcclAlgorithm::nvls_tree
                   ? 0.7 * nodes_ / (2 * (nodes_ - 1))
                   : before_2_28;
    }

    // --- latency, us ---

    [[nodiscard]] double hop_us(NcclHop hop, NcclAlgorithm algorithm, NcclProtocol protocol) const {
        // On POWER trees are to be preferred over PCIe.
        const bool power = settings_.cpu == HostCpu::power && hop == NcclHop::pcie &&
                           algorithm == NcclAlgorithm::tree && protocol == NcclProtocol::simple;
        return nccl_hop_us(version_, hop, power ? NcclAlgorithm::ring : algorithm, protocol);
    }

    // From GPU to GPU of one node. A GPU alone counts as PCIe's.
    [[nodiscard]] NcclHop inside() const {
        return machine_.nvlink && machine_.gpus > 1 ? NcclHop::nvlink : NcclHop::pcie;
    }

    // From GPU to GPU of two nodes. Simple waits for the network a second time, to flush. With one
    // GPU a node nothing hides it, and from 2.22 on a tree's is taken.
    [[nodiscard]] double inter_us(NcclAlgorithm algorithm, NcclProtocol protocol) const {
        const bool as_tree = version_ >= v2_23 && machine_.nodes == machine_.ranks;
        const double times = protocol == NcclProtocol::simple ? 2 : 1;
        return hop_us(NcclHop::net, as_tree ? NcclAlgorithm::tree : algorithm, protocol) +
               times * machine_.network_us;
    }

    [[nodiscard]] double latency_us(NcclAlgorithm algorithm, NcclProtocol protocol) const {
        const double base = nccl_base_us(version_, algorithm, protocol);
        const double intra = hop_us(inside(), algorithm, protocol);
        const double inter = inter_us(algorithm, protocol);
        const std::int64_t whole =
            machine_.ranks / machine_.nodes;  // nodes that are not full count
        const auto others = static_cast<double>(whole - 1);
        const auto doublings =
            static_cast<double>(std::bit_width(static_cast<std::uint64_t>(machine_.nodes)) - 1);
        switch (algorithm) {
            case NcclAlgorithm::ring:
                return base + (kind_ == CollectiveKind::broadcast ? broadcast_us(protocol)
                                                                  : ring_us(protocol));
            case NcclAlgorithm::tree:
                return base + 2 * (others * intra + doublings * inter);
            case NcclAlgorithm::collnet_direct: {
                const double each_us = version_ == v2_18 ? 0.5 : 0.4;
                return base + 2 * (std::min(1.0, others) * intra + others * each_us) + inter;
            }
            case NcclAlgorithm::collnet_chain:
                return base + 2 * others * intra + inter;
            case NcclAlgorithm::nvls:
                return base + intra + (several() ? nvls_net_us(algorithm, inter) : 0);
            case NcclAlgorithm::nvls_tree:
                return base + intra +
                       (version_ == v2_18 ? 2 * (nodes_ - 1) : 2 * doublings) *
                           nvls_net_us(algorithm, inter);
            case NcclAlgorithm::pat:
                break;
        }
        return base + doublings * inter / 3.5 + 2.8 * ranks_;
    }

    // 2.18 did not look at the network's own latency here.
    [[nodiscard]] double nvls_net_us(NcclAlgorithm algorithm, double inter) const {
        return version_ == v2_18 ? hop_us(NcclHop::net, algorithm, NcclProtocol::simple) : inter;
    }

    [[nodiscard]] double ring_us(NcclProtocol protocol) const {
        const auto rounds = static_cast<double>(rounds_of(kind_));
        double between = rounds * (nodes_ - 1);
        double intra = hop_us(inside(), NcclAlgorithm::ring, protocol);
        if (several()) {
            const double posts = protocol == NcclProtocol::simple ? 3 : 1;
            intra = std::max(intra, posts * nccl_post_us(settings_.cpu));
            if (version_ < v2_23 && kind_ == CollectiveKind::all_reduce) {
                between = rounds * nodes_;
            }
        }
        return (rounds * (ranks_ - 1) - between) * intra +
               between * inter_us(NcclAlgorithm::ring, protocol);
    }

    [[nodiscard]] double broadcast_us(NcclProtocol protocol) const {
        const NcclHop hop = several() ? NcclHop::net : inside();
        if (machine_.same_channels) {
            return hop_us(hop, NcclAlgorithm::ring, protocol);
        }
        const bool as_tree = protocol == NcclProtocol::simple;
        return ranks_ * hop_us(hop, as_tree ? NcclAlgorithm::tree : NcclAlgorithm::ring, protocol);
    }

    // --- ncclTopoGetAlgoTime ---

    [[nodiscard]] double share_of_size(NcclAlgorithm algorithm, NcclProtocol protocol,
                                       Bytes bytes) const {
        const bool x86 = settings_.cpu == HostCpu::intel || settings_.cpu == HostCpu::amd;
        const bool nvls_tree = algorithm == NcclAlgorithm::nvls_tree && version_ >= v2_30 && x86 &&
                               settings_.generation == GpuGeneration::blackwell;
        return algorithm == NcclAlgorithm::tree || nvls_tree
                   ? nccl_tree_share(version_, algorithm, protocol, bytes)
                   : 1;
    }

    // Rings between nodes slow down where channels have more than a few bytes for each rank.
    [[nodiscard]] double plateau(NcclAlgorithm algorithm, NcclProtocol protocol,
                                 Bytes bytes) const {
        constexpr std::int64_t few_bytes = 64;
        const bool rises = algorithm == NcclAlgorithm::ring && protocol == NcclProtocol::simple &&
                           several() && kind_ == CollectiveKind::all_reduce &&
                           bytes.count / (settings_.channels * machine_.ranks) >= few_bytes;
        if (!rises) {
            return 1;
        }
        return settings_.generation == GpuGeneration::volta ? 1.9 : 1.4;
    }

    CollectiveKind kind_;
    const NcclMachine& machine_;
    const NcclSettings& settings_;
    NcclVersion version_;
    NcclLimits limits_;
    double ranks_;
    double nodes_;
};

}  // namespace

std::span<const NcclEstimate> nccl_estimates(CollectiveKind kind, Bytes bytes,
                                             const NcclMachine& machine, NcclPairs& pairs) {
    const NcclModel model(kind, machine);
    std::size_t count = 0;
    for (const NcclAlgorithm algorithm : every<NcclAlgorithm>) {
        for (const NcclProtocol protocol : every<NcclProtocol>) {
            if (const auto estimate = model.estimate(algorithm, protocol, bytes)) {
                pairs[count++] = *estimate;
            }
        }
    }
    return {pairs.data(), count};
}

std::vector<NcclEstimate> nccl_estimates(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                                         const RegularTopology& topology,
                                         const NcclSettings& settings) {
    NcclPairs pairs;
    const auto found = nccl_estimates(kind, bytes, nccl_machine(ranks, topology, settings), pairs);
    std::vector<NcclEstimate> estimates(found.begin(), found.end());
    std::ranges::stable_sort(estimates, {}, &NcclEstimate::time);
    return estimates;
}

NcclEstimate nccl_choice(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                         const RegularTopology& topology, const NcclSettings& settings) {
    NcclPairs pairs;
    return std::ranges::min(
        nccl_estimates(kind, bytes, nccl_machine(ranks, topology, settings), pairs), {},
        &NcclEstimate::time);
}

}  // namespace bucketwise
