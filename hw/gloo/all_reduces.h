// The all-reduces that ranks can choose from, and what they share. Each runs as one collective of
// the group. Preconditions: at least two ranks and one element.
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

using AllReduce = void(GlooGroup& group, Scratch& scratch, void* data, std::int64_t elements,
                       DType dtype);

// Gloo's own: a ring that works on segments of at most 1 MiB, two in flight.
//
// communication steps: 2(p-1), each of two or more segments
// bytes on the wire: 2(p-1)/p n, from every rank
AllReduce library_all_reduce;

// Ring (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations"): a reduce-scatter and an all-gather in which every rank sends only to the next and
// receives only from the one before.
//
// communication steps: 2(p-1)
// bytes on the wire: 2(p-1)/p n, from every rank
AllReduce ring_all_reduce;

// Direct ("butterfly" in scenarios/README.md): every rank sends chunk i straight to rank i, all at
// once, adds up its own chunk and sends the result to all others.
//
// communication steps: 2, each of p-1 messages at once
// bytes on the wire: 2(p-1)/p n, from every rank
AllReduce direct_all_reduce;

}  // namespace bucketwise
