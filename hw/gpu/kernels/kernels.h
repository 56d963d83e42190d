// Our own kernels. Each function puts one launch on a stream and returns; what it touches is on the
// device. Throw GpuError when the launch fails.
//
// kernel_bodies.h holds what a thread computes, as functions that the host can run too.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "hw/batch_norm/batch_norm_passes.h"
#include "hw/gpu/kernels/kernel_arguments.h"
#include "hw/training/training_passes.h"
#include "sim/base/dtype.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Packs or unpacks many tensors in one launch: place[i] = factor * tensor[i], cast, or tensor[i] =
// factor * place[i]. `chunks` in device memory.
void launch_pack(cudaStream_t stream, PackDirection direction, const Chunk* chunks,
                 std::int64_t count, DType to_dtype, DType from_dtype, double factor);

// to[i] = factor * from[i], i < count. `to` may be `from`.
void launch_copy(cudaStream_t stream, void* to, DType to_dtype, const void* from, DType from_dtype,
                 std::int64_t count, double factor);

// to[i] += from[i], i < count, in the wider of the two and rounded at the end.
void launch_add(cudaStream_t stream, void* to, DType to_dtype, const void* from, DType from_dtype,
                std::int64_t count);

// to[i] = factor * rows[i / columns] * pattern[i % columns], or += where `accumulate`.
void launch_outer_product(cudaStream_t stream, void* to, DType dtype, std::int64_t count,
                          const OuterProduct& product, bool accumulate);

// An activation's backward: y[i] = y[i] / 2 + x[i] + 1, two tensors read, one written.
void launch_element_wise(cudaStream_t stream, void* y, const void* x, DType dtype,
                         std::int64_t count);

// Arithmetic that takes time in proportion to `work`, on all multiprocessors alike: the fewer are
// free for it, the longer it takes. `sink` holds filler_threads floats.
void launch_filler(cudaStream_t stream, float* sink, std::int64_t work);

// One step of an optimizer over all parameters in one launch: chunks of gradients, whose places are
// their float32 parameters. `moments`: by chunk of the whole, as many floats as parameters
// (momentum) or twice that (Adam). The rate is zero in effect.
void launch_optimizer(cudaStream_t stream, const Chunk* chunks, std::int64_t count,
                      DType gradient_dtype, Optimizer optimizer, const OptimizerState& state);

// Compares every element with factor * row * column. `expected` and `results` by tensor_index.
void launch_check(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType dtype,
                  const ExpectedProduct* expected, CheckResult* results);

// Holds up the stream until the host sets *flag to `value` or more. Gives up after some seconds and
// sets *gave_up: a driver that waits for the GPU before it launches something for the first time
// would else wait for ever. Both are memory of the host.
void launch_wait_for_flag(cudaStream_t stream, const volatile int* flag, int value,
                          volatile int* gave_up);

// Puts one launch on the stream, or none where there is nothing to do, and returns; what the pass
// touches is on the device. Throws GpuError when the launch fails.
void launch_training(cudaStream_t stream, const TrainingPass& pass);

// One launch on the stream; what it touches is on the device. Throws GpuError when it fails.
void launch_batch_norm(cudaStream_t stream, const BatchNormPass& pass);

}  // namespace bucketwise
