#include "hw/gloo/predicted_all_reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "hw/compute/elements.h"
#include "hw/compute/known_message.h"
#include "hw/gloo/gloo_collectives.h"

namespace bucketwise {
namespace {

constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// How gloo/allreduce.cc cuts a buffer for its ring: into equal segments, equally many for each
// rank; the last ones may be short or empty.
struct GlooSegments {
    std::int64_t size = 0;      // bytes
    std::int64_t per_rank = 0;  // segments
};

GlooSegments gloo_segments(std::int64_t elements, std::int64_t element, std::int64_t ranks) {
    constexpr std::int64_t most = std::int64_t{1} << 20;  // AllreduceOptions' default
    const std::int64_t bytes = elements * element;
    const std::int64_t largest = most / element * element;
    const std::int64_t segments =
        rounded_up(std::max((bytes + largest - 1) / largest, 2 * ranks), ranks);
    return {rounded_up((bytes + segments - 1) / segments, element), segments / ranks};
}

// Elements that are summed in the same order.
MessageChunk stretch_of(AllReduceImplementation implementation, std::int64_t elements, DType dtype,
                        int ranks, int chunk) {
    if (implementation != AllReduceImplementation::library) {
        return chunk_of(elements, ranks, chunk);
    }
    const std::int64_t element = element_size(dtype).count;
    const GlooSegments segments = gloo_segments(elements, element, ranks);
    const std::int64_t shared = segments.size * segments.per_rank / element;
    const std::int64_t first = std::min(chunk * shared, elements);
    return {first, std::min(shared, elements - first)};
}

constexpr std::int64_t block_elements = 1024;

// The sum of a block as the ranks of `order(0)`, `order(1)`, ... add to it, beside the exact one.
class BlockSum {
  public:
    BlockSum(DType dtype, int ranks) : dtype_(dtype), ranks_(ranks), add_(element_sum(dtype)) {}

    template <typename Order>
    double largest_difference(std::int64_t first, std::int64_t elements, const Order& order) {
        exact_.fill(0);
        for (int i = 0; i < ranks_; ++i) {
            write_terms(order(i), first, elements);
            cast_scaled(i == 0 ? sum_.data() : addend_.data(), dtype_, terms_.data(),
                        DType::float64, elements, 1.0);
            if (i > 0) {
                add_(sum_.data(), addend_.data(), elements);
            }
        }
        cast_scaled(terms_.data(), DType::float64, sum_.data(), dtype_, elements, 1.0);
        double largest = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
            largest = std::max(largest, static_cast<double>(std::abs(terms_[i] - exact_[i])));
        }
        return largest;
    }

  private:
    void write_terms(int rank, std::int64_t first, std::int64_t elements) {
        for (std::int64_t i = 0; i < elements; ++i) {
            const double term = known_term(rank, first + i, dtype_);
            terms_[static_cast<std::size_t>(i)] = term;
            exact_[static_cast<std::size_t>(i)] += term;
        }
    }

    DType dtype_;
    int ranks_;
    ElementSum add_;
    std::array<double, block_elements> terms_{};
    std::array<long double, block_elements> exact_{};
    alignas(std::max_align_t) std::array<std::byte, 8 * block_elements> sum_{};
    alignas(std::max_align_t) std::array<std::byte, 8 * block_elements> addend_{};
};

// The rank that adds its part of chunk `chunk` after `added` others have. Precondition: added < p.
int adding_rank(AllReduceImplementation implementation, int chunk, int added, int p) {
    return implementation == AllReduceImplementation::library ? (chunk - 1 - added + 2 * p) % p
                                                              : (chunk + added) % p;
}

}  // namespace

Bytes all_reduce_scratch(AllReduceImplementation implementation, std::int64_t elements, DType dtype,
                         std::int64_t ranks) {
    if (ranks == 1) {
        return {0};
    }
    const std::int64_t element = element_size(dtype).count;
    const std::int64_t chunk = (elements + ranks - 1) / ranks * element;
    switch (implementation) {
        case AllReduceImplementation::ring:
            return {ranks == 2 ? chunk : 2 * chunk};
        case AllReduceImplementation::direct:
            return {(ranks - 1) * chunk};
        case AllReduceImplementation::library:
            return {2 * gloo_segments(elements, element, ranks).size};
    }
    return {0};
}

double all_reduce_difference(AllReduceImplementation implementation, std::int64_t elements,
                             DType dtype, std::int64_t ranks) {
    const int p = static_cast<int>(ranks);
    BlockSum block(dtype, p);
    double largest = 0;
    for (int chunk = 0; chunk < p; ++chunk) {
        const MessageChunk stretch = stretch_of(implementation, elements, dtype, p, chunk);
        for (std::int64_t done = 0; done < stretch.elements; done += block_elements) {
            largest = std::max(
                largest,
                block.largest_difference(
                    stretch.first + done, std::min(block_elements, stretch.elements - done),
                    [&](int i) { return adding_rank(implementation, chunk, i, p); }));
        }
    }
    return largest / static_cast<double>(ranks);
}

}  // namespace bucketwise
