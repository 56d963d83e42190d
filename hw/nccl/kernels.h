// Our own kernels. Each function puts one launch on a stream and returns; what it touches is on the
// device. Throw GpuError when the launch fails.
//
// kernel_bodies.h holds what a thread computes, as functions that the host can run too.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "sim/dtype.h"
#include "sim/scenario.h"

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

// Multi-tensor pack: place[i] = factor * tensor[i], cast; unpack: tensor[i] = factor * place[i].
// One launch for all tensors. `chunks` in device memory.
void launch_pack(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType place_dtype,
                 DType tensor_dtype, double factor);
void launch_unpack(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType tensor_dtype,
                   DType place_dtype, double factor);

// to[i] = factor * from[i], i < count. `to` may be `from`.
void launch_copy(cudaStream_t stream, void* to, DType to_dtype, const void* from, DType from_dtype,
                 std::int64_t count, double factor);

// to[i] = factor * rows[i / columns] * pattern[i % columns], or += where `accumulate`.
struct OuterProduct {
    const float* rows = nullptr;
    const float* pattern = nullptr;
    std::int64_t columns = 1;
    float factor = 1;
};
void launch_outer_product(cudaStream_t stream, void* to, DType dtype, std::int64_t count,
                          const OuterProduct& product, bool accumulate);

// An activation's backward: y[i] = y[i] / 2 + x[i] + 1, two tensors read, one written.
void launch_element_wise(cudaStream_t stream, void* y, const void* x, DType dtype,
                         std::int64_t count);

// Arithmetic that takes time in proportion to `work`, on all multiprocessors alike: the fewer are
// free for it, the longer it takes. `sink` holds filler_threads floats.
constexpr std::int64_t filler_blocks = 1024;
constexpr std::int64_t filler_block_threads = 256;
constexpr std::int64_t filler_threads = filler_blocks * filler_block_threads;
void launch_filler(cudaStream_t stream, float* sink, std::int64_t work);

// One step of an optimizer over all parameters in one launch: chunks of gradients, whose places are
// their float32 parameters. `moments`: by chunk of the whole, as many floats as parameters
// (momentum) or twice that (Adam). The rate is zero in effect.
struct OptimizerState {
    float* first_moments = nullptr;  // parallel to all parameters from `parameters` on
    float* second_moments = nullptr;
    const float* parameters = nullptr;
};
void launch_optimizer(cudaStream_t stream, const Chunk* chunks, std::int64_t count,
                      DType gradient_dtype, Optimizer optimizer, const OptimizerState& state);

// What a check of one tensor found; in device memory, all zero bits but first_wrong before.
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
// Compares every element with factor * row * column. `expected` and `results` by tensor_index.
void launch_check(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType dtype,
                  const ExpectedProduct* expected, CheckResult* results);

// Holds up the stream until the host sets *flag to `value` or more. Gives up after some seconds and
// sets *gave_up: a driver that waits for the GPU before it launches something for the first time
// would else wait for ever. Both are memory of the host.
constexpr std::int64_t flag_patience_ns = 10'000'000'000;
void launch_wait_for_flag(cudaStream_t stream, const volatile int* flag, int value,
                          volatile int* gave_up);

}  // namespace bucketwise
