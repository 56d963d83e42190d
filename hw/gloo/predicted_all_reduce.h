// The memory and the rounding of the all-reduces of this folder, without running them: both follow
// from the cuts of the buffer and the order of additions.
#pragma once

#include <cstdint>

#include "hw/rank/communicator.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"

namespace bucketwise {

// The memory that each rank receives into before it adds, beside the message itself, as far as its
// pages are ever touched. On p ranks, of n bytes (chunks are of whole elements, so a little more):
//   ring     two chunks of n/p in turn; one at p = 2, whose only step needs no second
//   direct   the own chunk of n/p from each of the p-1 others
//   library  two of Gloo's segments: n over a multiple of p that is at least 2p, each at most 1 MiB
// One rank needs none. Preconditions: elements >= 0, ranks >= 1.
Bytes all_reduce_scratch(AllReduceImplementation implementation, std::int64_t elements, DType dtype,
                         std::int64_t ranks);

// How far the mean of the known message (hw/compute/known_message.h) ends up from the exact one, in
// its worst element, bit for bit. Chunk c is summed from rank c on upwards round the ring by ours
// (the direct one adds in the same order, so the two are equal to the bit), from rank c-1 on
// downwards by Gloo's, so that it ends at rank c. Time grows with elements * ranks. Preconditions:
// elements
// >= 0, ranks >= 1.
double all_reduce_difference(AllReduceImplementation implementation, std::int64_t elements,
                             DType dtype, std::int64_t ranks);

}  // namespace bucketwise
