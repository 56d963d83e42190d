// From NCCL's cost model to the clock. The model ranks algorithms; it is optimistic of some and
// pessimistic of others. Three factors, NcclClock, turn what it expects into what nccl-tests
// measures; all are 1 where it is right. docs/links.md has what they were fitted to, and how well.
//
//   ring_ll  of the time that the bytes of a ring with LL need within a node, at every size
//   nvls     of NVLS on one node, at 8 to 16 MB; less beside that, none from 2 GB on
//   network  of what crosses two nodes, from 64 kB to some MB; less beside that, by algorithm and
//            the way to the NICs. It grows with the number of nodes: what it is beyond 1, by the
//            square root of the logarithm
#pragma once

#include <cstdint>
#include <optional>

#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"
#include "sim/link/network/nccl_machine.h"
#include "sim/link/network/nccl_model.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// Turns NCCL's expected time into the machine's clock. CollNet's pairs stay unchanged, for want of
// measurements.
Duration nccl_clock_time(const NcclEstimate& expected, Bytes bytes, const NcclMachine& machine);

// Time of a collective: the mean over the pairs that NCCL expects to be the fastest or within 15 %
// of it, weighted by how near they are. NCCL's knowledge of a machine is not more exact than that,
// and the time does not jump with the size. With all factors 1, and for broadcasts, for want of
// measurements, the time that NCCL expects.
//
// `most_blocks`: NCCL_MAX_CTAS. Fewer thread blocks than NCCL would take move no more than it
// believes of a channel (perChMaxTreeBws), whatever it chooses, as that does not look at them.
Duration nccl_time(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                   const RegularTopology& topology, const NcclSettings& settings,
                   std::optional<std::int64_t> most_blocks = {});

}  // namespace bucketwise
