// The collectives that ranks can choose from, and what they share. Each runs as one collective of
// the group, in place. Preconditions: at least two ranks and one element. n are the bytes of all of
// `data`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hw/gloo/meeting/group.h"
#include "sim/base/dtype.h"

namespace bucketwise {

// Memory that a collective receives into before it adds: kept between calls, so that only the first
// of a size pays for it.
class Scratch {
  public:
    // Aligned for every dtype. What an earlier call returned is no longer valid if it was smaller.
    char* at_least(std::int64_t size) {
        if (size > size_) {
            memory_ = std::make_unique_for_overwrite<std::max_align_t[]>(
                static_cast<std::size_t>(size) / sizeof(std::max_align_t) + 1);
            size_ = size;
        }
        return reinterpret_cast<char*>(memory_.get());
    }

  private:
    std::unique_ptr<std::max_align_t[]> memory_;
    std::int64_t size_ = 0;
};

// How a buffer is cut into one chunk per rank.
struct MessageChunk {
    std::int64_t first = 0;     // element
    std::int64_t elements = 0;  // the first `elements % ranks` chunks have one more than the others
};

constexpr MessageChunk chunk_of(std::int64_t elements, int ranks, int index) {
    const std::int64_t shared = elements / ranks;
    const std::int64_t larger = elements % ranks;
    return {index * shared + std::min<std::int64_t>(index, larger), shared + (index < larger)};
}

// All of `data` becomes the sum over all ranks.
using AllReduce = void(GlooGroup& group, Scratch& scratch, void* data, std::int64_t elements,
                       DType dtype);
// The chunk of this rank does; what the others then hold is not said.
using ReduceScatter = AllReduce;
// The chunk of every rank goes to all. Precondition: `bytes` is a multiple of the number of ranks.
using AllGather = void(GlooGroup& group, void* data, std::int64_t bytes);

// Gloo's own: a ring that works on segments of at most 1 MiB, two in flight.
//
// communication steps: 2(p-1), each of two or more segments
// bytes on the wire: 2(p-1)/p n, from every rank
AllReduce library_all_reduce;

// Gloo's own: a ring.
//
// communication steps: p-1
// bytes on the wire: (p-1)/p n, from every rank
AllGather library_all_gather;

// Ring (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations"): a reduce-scatter and an all-gather in which every rank sends only to the next and
// receives only from the one before.
//
// communication steps: 2(p-1)
// bytes on the wire: 2(p-1)/p n, from every rank
AllReduce ring_all_reduce;

// Each half of it.
//
// communication steps: p-1
// bytes on the wire: (p-1)/p n, from every rank
ReduceScatter ring_reduce_scatter;
AllGather ring_all_gather;

// Direct ("butterfly" in scenarios/README.md): every rank sends chunk i straight to rank i, all at
// once, adds up its own chunk and sends the result to all others.
//
// communication steps: 2, each of p-1 messages at once
// bytes on the wire: 2(p-1)/p n, from every rank
AllReduce direct_all_reduce;

// Each half of it.
//
// communication steps: 1, of p-1 messages at once
// bytes on the wire: (p-1)/p n, from every rank
ReduceScatter direct_reduce_scatter;
AllGather direct_all_gather;

// By who carries them out. Gloo's own reduce-scatter takes numbers of elements as int, sums no
// bfloat16 and allocates two buffers of the message's size for each call, so that PyTorch does not
// use it either: ours, the ring, stands in for it.
struct GlooCollectives {
    AllReduce* all_reduce;
    ReduceScatter* reduce_scatter;
    AllGather* all_gather;
};

}  // namespace bucketwise
