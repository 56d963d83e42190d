// The collectives that ranks can choose from, and their common parts. Each runs as one collective
// of the group, in place. Preconditions: at least two ranks and one element. n are the bytes of all
// of `data`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hw/compute/elements.h"
#include "hw/gloo/meeting/group.h"
#include "sim/base/dtype.h"

namespace bucketwise {

// Memory that a collective receives into before it adds: kept between calls, so that only the first
// of a size pays for it.
class Scratch {
  public:
    // Aligned for every dtype. An earlier result is no longer valid if it was smaller.
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

// The collectives of one implementation, n bytes of `data` on p ranks.
struct GlooCollectives {
    // All of `data` becomes the sum over all ranks.
    using Sum = void(GlooGroup& group, Scratch& scratch, void* data, std::int64_t elements,
                     DType dtype);
    Sum* all_reduce;
    // Only the chunk of this rank does; the others are undefined afterwards.
    Sum* reduce_scatter;
    // The chunk of every rank goes to all. Precondition: `bytes` is a multiple of p.
    void (*all_gather)(GlooGroup& group, void* data, std::int64_t bytes);
};

// Ring (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations"): a reduce-scatter and an all-gather; every rank sends only to the next and
// receives only from the one before.
//
// communication steps: 2(p-1), or p-1 for each half
// bytes on the wire: 2(p-1)/p n, or (p-1)/p n for each half, from every rank
extern const GlooCollectives ring_collectives;

// Direct ("butterfly" in scenarios/README.md): every rank sends chunk i straight to rank i, all at
// once, adds up its own chunk and sends the result to all others.
//
// communication steps: 2, or 1 for each half, each of p-1 messages at once
// bytes on the wire: 2(p-1)/p n, or (p-1)/p n for each half, from every rank
extern const GlooCollectives direct_collectives;

// Gloo's own: rings, the all-reduce on segments of at most 1 MiB, two in flight. Its reduce-scatter
// takes numbers of elements as int, sums no bfloat16 and allocates two buffers of the message's
// size for each call, so that PyTorch does not use it either: our ring stands in for it.
//
// communication steps: 2(p-1), each of two or more segments; all-gather: p-1
// bytes on the wire: 2(p-1)/p n; all-gather: (p-1)/p n, from every rank
extern const GlooCollectives library_collectives;

// The collectives of an algorithm that does each half by itself, constructed as
// Algorithm(group, data, elements, bytes of an element, whether it does one half only).
template <typename Algorithm>
struct ByHalves {
    static void all_reduce(GlooGroup& group, Scratch& scratch, void* data, std::int64_t elements,
                           DType dtype) {
        Algorithm both(group, data, elements, element_size(dtype).count, false);
        both.prepare_to_add(group, scratch, element_sum(dtype));
        group.collective("all-reduce", [&] {
            both.reduce_scatter();
            both.all_gather();
        });
    }
    static void reduce_scatter(GlooGroup& group, Scratch& scratch, void* data,
                               std::int64_t elements, DType dtype) {
        Algorithm half(group, data, elements, element_size(dtype).count, true);
        half.prepare_to_add(group, scratch, element_sum(dtype));
        group.collective("reduce-scatter", [&] { half.reduce_scatter(); });
    }
    static void all_gather(GlooGroup& group, void* data, std::int64_t bytes) {
        Algorithm half(group, data, bytes, 1, true);
        group.collective("all-gather", [&] { half.all_gather(); });
    }
    static constexpr GlooCollectives collectives{all_reduce, reduce_scatter, all_gather};
};

}  // namespace bucketwise
