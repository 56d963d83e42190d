#include "hw/gpu/kernels/batch_norm_kernels.h"

#include "hw/gpu/kernels/batch_norm_bodies.h"
#include "hw/gpu/kernels/launch.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_blocks_of_rows = 1024;

unsigned blocks_of_channels(const BatchShape& shape) {
    return blocks_for(shape.channels, sum_block_channels);
}

// Blocks stand side by side over the channels and, where there are several down, share the rows.
__device__ ColumnShare column_share() {
    return {static_cast<std::int64_t>(blockIdx.x) * sum_block_channels + threadIdx.x,
            static_cast<std::int64_t>(blockIdx.y) * sum_block_rows + threadIdx.y,
            static_cast<std::int64_t>(gridDim.y) * sum_block_rows};
}

// A channel's sums of all threads down it, in the first of them, always added in the same order.
// All threads of the block call it.
__device__ ChannelSums sum_of_block(const ChannelSums& own) {
    __shared__ double first[sum_block_rows][sum_block_channels];
    __shared__ double second[sum_block_rows][sum_block_channels];
    first[threadIdx.y][threadIdx.x] = own.first;
    second[threadIdx.y][threadIdx.x] = own.second;
    __syncthreads();
    ChannelSums sums;
    if (threadIdx.y == 0) {
        for (int row = 0; row < sum_block_rows; ++row) {
            sums.first += first[row][threadIdx.x];
            sums.second += second[row][threadIdx.x];
        }
    }
    return sums;
}

__global__ void local_statistics_kernel(const float* x, BatchShape shape, float* to) {
    const ColumnShare share = column_share();
    const bool inside = share.channel < shape.channels;
    const ChannelSums sums = sum_of_block(inside ? square_sums(x, shape, share) : ChannelSums{});
    if (inside && threadIdx.y == 0) {
        store_local_statistics(sums, static_cast<double>(shape.rows), to, shape.channels,
                               share.channel);
    }
}

__global__ void local_sums_kernel(const float* x, BatchShape shape, double* to) {
    const ColumnShare share = column_share();
    const bool inside = share.channel < shape.channels;
    const ChannelSums sums = sum_of_block(inside ? square_sums(x, shape, share) : ChannelSums{});
    if (inside && threadIdx.y == 0) {
        store_local_sums(sums, static_cast<double>(shape.rows), to, shape.channels, share.channel);
    }
}

__global__ void gradient_sums_kernel(const float* dy, const float* x, BatchShape shape,
                                     ChannelStatistics statistics, GradientScale scale,
                                     GradientSums to) {
    const ColumnShare share = column_share();
    const bool inside = share.channel < shape.channels;
    const ChannelSums sums = sum_of_block(
        inside ? products_with_gradient(dy, x, shape, statistics, share) : ChannelSums{});
    if (inside && threadIdx.y == 0) {
        store_gradient_sums(sums, statistics, to, shape.channels, share.channel, scale);
    }
}

__global__ void combine_kernel(const float* gathered, int ranks, BatchShape shape,
                               ChannelStatistics to) {
    const std::int64_t channel = global_thread();
    if (channel < shape.channels) {
        store_statistics(combined_moments(gathered, ranks, shape.channels, channel), to, channel);
    }
}

__global__ void statistics_of_sums_kernel(const double* sums, BatchShape shape,
                                          ChannelStatistics to) {
    const std::int64_t channel = global_thread();
    if (channel < shape.channels) {
        store_statistics(reduced_moments(sums, shape.channels, channel), to, channel);
    }
}

__global__ void normalise_kernel(const float* x, BatchShape shape, ChannelStatistics statistics,
                                 const float* weight, const float* bias, float* y) {
    const ColumnShare share = column_share();
    if (share.channel < shape.channels) {
        normalise_share(x, shape, statistics, weight, bias, y, share);
    }
}

__global__ void input_gradients_kernel(const float* dy, const float* x, BatchShape shape,
                                       ChannelStatistics statistics, GradientScale scale,
                                       const float* sums, const float* weight, float* dx) {
    const ColumnShare share = column_share();
    if (share.channel < shape.channels) {
        input_gradient_share(
            dy, x, shape,
            channel_gradient(sums, statistics, weight, shape.channels, share.channel, scale), dx,
            share);
    }
}

const dim3 sum_block(sum_block_channels, sum_block_rows);

// The blocks of a pass that writes every element.
dim3 element_grid(const BatchShape& shape) {
    return {blocks_of_channels(shape), blocks_for(shape.rows, sum_block_rows, most_blocks_of_rows)};
}

}  // namespace

void launch_local_statistics(cudaStream_t stream, const float* x, const BatchShape& shape,
                             float* to) {
    local_statistics_kernel<<<blocks_of_channels(shape), sum_block, 0, stream>>>(x, shape, to);
    check_launch("local_statistics_kernel");
}

void launch_local_sums(cudaStream_t stream, const float* x, const BatchShape& shape, double* to) {
    local_sums_kernel<<<blocks_of_channels(shape), sum_block, 0, stream>>>(x, shape, to);
    check_launch("local_sums_kernel");
}

void launch_combine(cudaStream_t stream, const float* gathered, int ranks, const BatchShape& shape,
                    const ChannelStatistics& to) {
    combine_kernel<<<blocks_for(shape.channels, block_threads), block_threads, 0, stream>>>(
        gathered, ranks, shape, to);
    check_launch("combine_kernel");
}

void launch_statistics_of_sums(cudaStream_t stream, const double* sums, const BatchShape& shape,
                               const ChannelStatistics& to) {
    statistics_of_sums_kernel<<<blocks_for(shape.channels, block_threads), block_threads, 0,
                                stream>>>(sums, shape, to);
    check_launch("statistics_of_sums_kernel");
}

void launch_normalise(cudaStream_t stream, const float* x, const BatchShape& shape,
                      const ChannelStatistics& statistics, const float* weight, const float* bias,
                      float* y) {
    if (shape.rows == 0) {
        return;
    }
    normalise_kernel<<<element_grid(shape), sum_block, 0, stream>>>(x, shape, statistics, weight,
                                                                    bias, y);
    check_launch("normalise_kernel");
}

void launch_gradient_sums(cudaStream_t stream, const float* dy, const float* x,
                          const BatchShape& shape, const ChannelStatistics& statistics,
                          GradientScale scale, const GradientSums& to) {
    gradient_sums_kernel<<<blocks_of_channels(shape), sum_block, 0, stream>>>(
        dy, x, shape, statistics, scale, to);
    check_launch("gradient_sums_kernel");
}

void launch_input_gradients(cudaStream_t stream, const float* dy, const float* x,
                            const BatchShape& shape, const ChannelStatistics& statistics,
                            GradientScale scale, const float* sums, const float* weight,
                            float* dx) {
    if (shape.rows == 0) {
        return;
    }
    input_gradients_kernel<<<element_grid(shape), sum_block, 0, stream>>>(dy, x, shape, statistics,
                                                                          scale, sums, weight, dx);
    check_launch("input_gradients_kernel");
}

}  // namespace bucketwise
