// The algorithm and protocol that NCCL would choose for a collective, and the time it expects: its
// own cost model, by version (src/graph/tuning.cc: ncclTopoTuneModel and ncclTopoGetAlgoTime). It
// estimates every pair as latency + bytes / bandwidth and takes the least.
//
// A prior, not a measurement: NCCL's constants are of the hardware it was tuned on. NCCL reckons in
// float and we in double: equal to a millionth.
//
// Left out: NCCL_* variables, tuner plugins, several operations in one group, symmetric kernels and
// copy engines, MNNVL, mixed GPUs or CPUs, fp8.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"
#include "sim/link/network/nccl_constants.h"
#include "sim/link/network/nccl_machine.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

constexpr bool scatters(CollectiveKind kind) {
    return kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter;
}
constexpr bool is_collnet(NcclAlgorithm algorithm) {
    return algorithm == NcclAlgorithm::collnet_direct || algorithm == NcclAlgorithm::collnet_chain;
}
constexpr bool is_nvls(NcclAlgorithm algorithm) {
    return algorithm == NcclAlgorithm::nvls || algorithm == NcclAlgorithm::nvls_tree;
}

struct NcclEstimate {
    NcclAlgorithm algorithm = NcclAlgorithm::ring;
    NcclProtocol protocol = NcclProtocol::simple;
    Duration time{0};
    Duration latency{0};  // of it, what does not depend on the bandwidth
    bool operator==(const NcclEstimate&) const = default;
};

// Every pair that can run on this topology, the cheapest first. The latency of the topology's nodes
// is no part of it, as NCCL brings its own; those of NICs and switches are.
// Precondition (asserted): a regular topology, two ranks or more.
std::vector<NcclEstimate> nccl_estimates(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                                         const RegularTopology& topology,
                                         const NcclSettings& settings);

// The same in NCCL's order, written into `pairs`. Returns the part in use.
using NcclPairs =
    std::array<NcclEstimate, every<NcclAlgorithm>.size() * every<NcclProtocol>.size()>;
std::span<const NcclEstimate> nccl_estimates(CollectiveKind kind, Bytes bytes,
                                             const NcclMachine& machine, NcclPairs& pairs);

// The first of them, the cheapest first.
NcclEstimate nccl_choice(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                         const RegularTopology& topology, const NcclSettings& settings);

// Use of a GPU by a collective while it runs: thread blocks, one a channel, and threads of each.
// Small messages use fewer channels than there are (src/enqueue.cc: topoGetAlgoInfo, and
// from 2.22 on scheduleCollTasksToPlan, of one collective of float32 alone).
struct NcclBlocks {
    std::int64_t blocks = 1;
    std::int64_t threads = 640;
    bool operator==(const NcclBlocks&) const = default;
};
NcclBlocks nccl_blocks(CollectiveKind kind, Bytes bytes, const NcclEstimate& chosen,
                       const NcclMachine& machine);

}  // namespace bucketwise
