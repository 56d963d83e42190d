#include "hw/gpu/kernels/kernels.h"

#include "hw/gpu/kernels/kernel_bodies.h"

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

template <typename Pass>
__global__ void sum_kernel(Pass pass) {
    const ColumnShare share = column_share();
    const bool inside = share.channel < pass.shape.channels;
    const ChannelSums sums = sum_of_block(inside ? sums_of_share(pass, share) : ChannelSums{});
    if (inside && threadIdx.y == 0) {
        pass.store(sums, share.channel);
    }
}

template <typename Pass>
__global__ void channel_kernel(Pass pass) {
    const std::int64_t channel = global_thread();
    if (channel < pass.shape.channels) {
        pass.of_channel(channel);
    }
}

template <typename Pass>
__global__ void element_kernel(Pass pass) {
    const ColumnShare share = column_share();
    if (share.channel < pass.shape.channels) {
        write_share(pass, share);
    }
}

const dim3 sum_block(sum_block_channels, sum_block_rows);

template <typename Pass>
void launch(cudaStream_t stream, const Pass& pass) {
    if constexpr (SumsRows<Pass>) {
        sum_kernel<<<blocks_of_channels(pass.shape), sum_block, 0, stream>>>(pass);
    } else if constexpr (!WritesElements<Pass>) {
        channel_kernel<<<blocks_for(pass.shape.channels, block_threads), block_threads, 0,
                         stream>>>(pass);
    } else if (pass.shape.rows > 0) {
        const dim3 blocks{blocks_of_channels(pass.shape),
                          blocks_for(pass.shape.rows, sum_block_rows, most_blocks_of_rows)};
        element_kernel<<<blocks, sum_block, 0, stream>>>(pass);
    } else {
        return;
    }
    check_launch(Pass::kernel);
}

}  // namespace

void launch_batch_norm(cudaStream_t stream, const BatchNormPass& pass) {
    std::visit([stream](const auto& one) { launch(stream, one); }, pass);
}

}  // namespace bucketwise
