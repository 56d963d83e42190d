// NCCL's own numbers, by version: what an algorithm's hops take, and what a channel can move. Facts
// of NCCL's sources, each named beside its table in nccl_constants.cpp.
#pragma once

#include <cstdint>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// NCCL looks at them in this order: among equals it takes the first.
enum class NcclAlgorithm : std::uint8_t {
    tree,
    ring,
    collnet_direct,
    collnet_chain,
    nvls,
    nvls_tree,
    pat  // of one GPU a node: parallel aggregated trees
};
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };

template <>
inline constexpr auto names_of<NcclAlgorithm> = names("tree", "ring", "collnet direct",
                                                      "collnet chain", "nvls", "nvls tree", "pat");
template <>
inline constexpr auto names_of<NcclProtocol> = names("LL", "LL128", "Simple");

// Between GPUs of a node, over NVLink or otherwise, and between nodes.
enum class NcclHop : std::uint8_t { nvlink, pcie, net };

template <>
inline constexpr auto names_of<NcclHop> = names("nvlink", "pcie", "net");

// Microseconds: of a collective at all, and of each hop.
double nccl_base_us(NcclVersion version, NcclAlgorithm algorithm, NcclProtocol protocol);
double nccl_hop_us(NcclVersion version, NcclHop hop, NcclAlgorithm algorithm,
                   NcclProtocol protocol);

// GB/s. On how many nodes: one, two, or more.
struct NcclLimits {
    double ll = 0;  // all channels together
    double ring_ll128 = 0;
    double tree_ll128 = 0;
    double tree = 0;
    double nvls_tree = 0;
};
NcclLimits nccl_limits(const NcclSettings& settings, std::int64_t nodes);

// The share of its bandwidth that NVLS keeps, from 2.28 on.
double nccl_nvls_efficiency(GpuGeneration generation);

// The share of its bandwidth that a tree, or NVLSTree, keeps with so many bytes.
double nccl_tree_share(NcclVersion version, NcclAlgorithm algorithm, NcclProtocol protocol,
                       Bytes bytes);

// Host time to post to the network, in us.
double nccl_post_us(HostCpu cpu);

// The fastest channel that the search tries, in GB/s.
double nccl_fastest_channel(const NcclSettings& settings, std::int64_t nodes);

std::int64_t compute_capability_of(const NcclSettings& settings);

}  // namespace bucketwise
