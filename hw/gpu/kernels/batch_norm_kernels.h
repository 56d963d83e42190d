// BatchNorm's passes as kernels of our own, each one launch on the stream; what they touch is on
// the device. What they compute: BatchNormDevice. Throw GpuError when the launch fails.
//
// A thread goes down a column of the [rows, channels] matrix, its neighbours down the columns
// beside it, so that a warp reads whole cache lines. Sums over rows are made by one block for each
// 32 channels: right for up to some thousand rows, the batches of a layer on vectors; the maps of a
// convolution, with a million rows, would want more blocks than that.
#pragma once

#include <cuda_runtime_api.h>

#include "hw/batch_norm/sync_batch_norm.h"

namespace bucketwise {

void launch_local_statistics(cudaStream_t stream, const float* x, const BatchShape& shape,
                             float* to);
void launch_local_sums(cudaStream_t stream, const float* x, const BatchShape& shape, double* to);
void launch_combine(cudaStream_t stream, const float* gathered, int ranks, const BatchShape& shape,
                    const ChannelStatistics& to);
void launch_statistics_of_sums(cudaStream_t stream, const double* sums, const BatchShape& shape,
                               const ChannelStatistics& to);
void launch_normalise(cudaStream_t stream, const float* x, const BatchShape& shape,
                      const ChannelStatistics& statistics, const float* weight, const float* bias,
                      float* y);
void launch_gradient_sums(cudaStream_t stream, const float* dy, const float* x,
                          const BatchShape& shape, const ChannelStatistics& statistics,
                          GradientScale scale, const GradientSums& to);
void launch_input_gradients(cudaStream_t stream, const float* dy, const float* x,
                            const BatchShape& shape, const ChannelStatistics& statistics,
                            GradientScale scale, const float* sums, const float* weight, float* dx);

}  // namespace bucketwise
