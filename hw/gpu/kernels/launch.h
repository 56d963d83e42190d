// How kernels are launched: threads and blocks for so much work, and whether the launch went well.
// For sources that the CUDA compiler reads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hw/gpu/runtime/gpu_check.h"

namespace bucketwise {

constexpr int block_threads = 256;

// One block for every `per_block` items, but at least one and at most `most`.
inline unsigned blocks_for(std::int64_t items, std::int64_t per_block,
                           std::int64_t most = INT32_MAX) {
    return static_cast<unsigned>(
        std::clamp<std::int64_t>((items + per_block - 1) / per_block, 1, most));
}

// For kernels whose threads go over their data in strides: several blocks for every multiprocessor
// there is on any GPU suffice.
inline unsigned striding_blocks(std::int64_t items, std::int64_t per_block) {
    return blocks_for(items, per_block, 132 * 16);
}

inline void check_launch(const char* kernel) {
    check_gpu(cudaGetLastError(), kernel);
}

__device__ inline std::int64_t global_thread() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline std::int64_t all_threads() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace bucketwise
