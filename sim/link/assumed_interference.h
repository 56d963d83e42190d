// Assumed slowdowns of computing and collectives on GPUs by each other, where nobody measured them.
// Where each number is from, and how far off it is: docs/decisions/overlap_costs.md.
//
//   computing    thread blocks of NCCL hold as many multiprocessors, which leaves computing S - c
//                of S: S / (S - c) times as long. A matrix product also loses half a wave of its
//                blocks, a pass over memory the share of the bandwidth that the collective takes.
//   collective   1.3 times as long; and one that begins beside computing waits until, on the last
//                rank, the operation that runs there is over.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/link/link.h"

namespace bucketwise {

// The computing that runs beside collectives, as far as it is known.
struct ComputingBeside {
    std::optional<std::int64_t> multiprocessors = {};     // none: the link's generation of GPUs has
    std::optional<BytesPerSecond> memory_bandwidth = {};  // peak
    double product_share = 1;                             // matrix products', of the time
    Duration product{0};                                  // the mean one; 0: not known
    Duration operation{0};                                // the mean one; 0: not known
};

// By the topology or provenance of the link or of a tier.
bool joins_gpus(const LinkParameters& link);

// Whether it does and its interference is not known. One that is "none" is known.
bool lacks_interference(const LinkParameters& link);

// By size, with errors as wide as the evidence leaves it. Precondition (asserted): the link lacks
// it, and its collectives have a cost (sim/link/collective.h) in that group.
std::vector<InterferenceSegment> assumed_interference(const LinkParameters& link,
                                                      const RankGroup& group,
                                                      const ComputingBeside& computing);

}  // namespace bucketwise
