// Kernels of training: each function puts one launch on a stream and returns; what it touches is on
// the device. Throw GpuError when the launch fails. What a thread computes is in
// hw/training/training_bodies.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "hw/training/training_bodies.h"

namespace bucketwise {

void launch_gather(cudaStream_t stream, const GatherCall& call);
void launch_add_bias(cudaStream_t stream, float* x, const float* bias, std::int64_t rows,
                     std::int64_t columns);
void launch_relu(cudaStream_t stream, float* x, std::int64_t count);
void launch_relu_gradient(cudaStream_t stream, float* gradient, const float* activation,
                          std::int64_t count);
void launch_column_sums(cudaStream_t stream, float* sums, const float* x, std::int64_t rows,
                        std::int64_t columns, bool accumulate);
void launch_cross_entropy(cudaStream_t stream, const CrossEntropyCall& call);
void launch_sgd(cudaStream_t stream, const SgdCall& call);

}  // namespace bucketwise
