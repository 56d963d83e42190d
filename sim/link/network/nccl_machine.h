// The inputs of NCCL's cost model: its knowledge of the ranks, and the result of its search for
// channels (ncclTopoCompute). The search itself is not run: for each algorithm we take what it
// would find where every GPU reaches every other, and each NIC serves the same number of
// neighbouring GPUs. Its bandwidths come in steps (of 40, 30, 24 GB/s and so on); ours are the
// topology's.
#pragma once

#include <cstdint>

#include "sim/link/network/topology.h"

namespace bucketwise {

// Channels of the search, ncclTopoGraph: each is run twice. Bandwidths are of one channel.
struct NcclGraph {
    std::int64_t channels = 0;
    double intra_gb_per_s = 0;
    double inter_gb_per_s = 0;
};

struct NcclMachine {
    NcclSettings settings;
    std::int64_t ranks = 2;
    std::int64_t nodes = 1;
    std::int64_t gpus = 2;           // of a node, those that take part
    std::int64_t collnet_heads = 0;  // of them, with a NIC of their own; CollNet asks for it
    bool nvlink = true;              // between them
    NicPath nic_path = NicPath::pxb;
    bool nvls = false;          // their switch sums and multicasts
    bool collnet = false;       // and switches between nodes do
    bool same_channels = true;  // all channels visit the GPUs in one order
    double network_us = 0;      // of NICs and switches, beyond NCCL's own constants
    NcclGraph ring;
    NcclGraph tree;  // and CollNet's chain, and PAT
    NcclGraph collnet_direct;
    NcclGraph nvls_graph;

    [[nodiscard]] double per_node() const {
        return static_cast<double>(ranks) / static_cast<double>(nodes);
    }
};

// Precondition (asserted): a place for every rank, two or more.
NcclMachine nccl_machine(std::int64_t ranks, const RegularTopology& topology,
                         const NcclSettings& settings);

}  // namespace bucketwise
