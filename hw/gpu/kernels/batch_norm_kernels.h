// BatchNorm's passes as kernels of our own.
//
// A thread goes down a column of the [rows, channels] matrix, its neighbours down the columns
// beside it, so that a warp reads whole cache lines. Sums over rows are made by one block for each
// 32 channels: right for up to some thousand rows, the batches of a layer on vectors; the maps of a
// convolution, with a million rows, would want more blocks than that.
#pragma once

#include <cuda_runtime_api.h>

#include "hw/batch_norm/batch_norm_passes.h"

namespace bucketwise {

// A block that sums over rows is so many channels wide, with so many threads down each of them.
constexpr int sum_block_channels = 32;
constexpr int sum_block_rows = 8;

// The rows of one channel that a thread goes down.
struct ColumnShare {
    std::int64_t channel = 0;
    std::int64_t first_row = 0;
    std::int64_t step = 1;
};

template <SumsRows Pass>
BUCKETWISE_BOTH_SIDES ChannelSums sums_of_share(const Pass& pass, const ColumnShare& share) {
    ChannelSums sums;
    for (std::int64_t row = share.first_row; row < pass.shape.rows; row += share.step) {
        const ChannelSums terms =
            pass.terms(row * pass.shape.channels + share.channel, share.channel);
        sums.first += terms.first;
        sums.second += terms.second;
    }
    return sums;
}

template <WritesElements Pass>
BUCKETWISE_BOTH_SIDES void write_share(const Pass& pass, const ColumnShare& share) {
    const auto known = pass.known_of(share.channel);
    for (std::int64_t row = share.first_row; row < pass.shape.rows; row += share.step) {
        pass.write(row * pass.shape.channels + share.channel, known);
    }
}

// One launch on the stream; what it touches is on the device. Throws GpuError when it fails.
void launch_batch_norm(cudaStream_t stream, const BatchNormPass& pass);

}  // namespace bucketwise
