// Arguments and results of kernels: values in tables and in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw/compute/elements.h"

namespace bucketwise {

// Part of a tensor, for one warp. Lives in a table in device memory.
struct Chunk {
    std::byte* tensor = nullptr;  // the whole tensor
    std::byte* place = nullptr;   // the whole tensor's place in its bucket; or its other companion
    std::int64_t begin = 0;       // elements
    std::int64_t count = 0;       // elements
    std::int64_t tensor_index = 0;  // whose results and factors these are
};

// So large that a warp's reads overlap, so small that a bucket of 25 MiB is shared out evenly among
// the multiprocessors.
constexpr std::int64_t chunk_elements = 2048;

// rows[i / columns] * pattern[i % columns], times `factor`.
struct OuterProduct {
    const float* rows = nullptr;
    const float* pattern = nullptr;
    std::int64_t columns = 1;
    float factor = 1;
};

// Threads of the arithmetic that only takes time.
constexpr std::int64_t filler_blocks = 1024;
constexpr std::int64_t filler_block_threads = 256;
constexpr std::int64_t filler_threads = filler_blocks * filler_block_threads;

struct OptimizerState {
    float* first_moments = nullptr;  // parallel to all parameters from `parameters` on
    float* second_moments = nullptr;
    const float* parameters = nullptr;
};

// The result of checking one tensor; in device memory, all zero bits but first_wrong before.
struct CheckResult {
    std::uint64_t largest_difference_bits = 0;  // of a double >= 0, which order like its bits
    std::int64_t first_wrong = -1;              // element further off than the tolerance
};
struct ExpectedProduct {
    const float* rows = nullptr;
    const float* pattern = nullptr;
    std::int64_t columns = 1;
    double factor = 1;     // of the exact mean
    double tolerance = 0;  // relative
};

// How long a stream waits for a flag of the host.
constexpr std::int64_t flag_patience_ns = 10'000'000'000;

}  // namespace bucketwise
