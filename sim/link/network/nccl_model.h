// Which algorithm and protocol NCCL would choose for a collective, and what it expects of it: its
// own cost model (NCCL 2.28, src/graph/tuning.cc). It estimates every pair as latency + bytes /
// bandwidth and takes the least; there are no thresholds of size.
//
// A prior, not a measurement: NCCL's constants are of the hardware it was tuned on.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

enum class NcclAlgorithm : std::uint8_t { ring, tree, nvls, nvls_tree };
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };

template <>
inline constexpr auto names_of<NcclAlgorithm> = names("ring", "tree", "nvls", "nvls tree");
template <>
inline constexpr auto names_of<NcclProtocol> = names("LL", "LL128", "Simple");

struct NcclEstimate {
    NcclAlgorithm algorithm = NcclAlgorithm::ring;
    NcclProtocol protocol = NcclProtocol::simple;
    Duration time{0};
    bool operator==(const NcclEstimate&) const = default;
};

// Every pair that can run on this topology, the cheapest first. The latency of the topology's nodes
// is no part of it, as NCCL brings its own; those of NICs and switches are. Broadcast: rings only.
// Precondition (asserted): a regular topology, two ranks or more.
std::vector<NcclEstimate> nccl_estimates(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                                         const RegularTopology& topology,
                                         const NcclSettings& settings);

}  // namespace bucketwise
