// What one thread of BatchNorm's kernels computes, as functions that the host can run too.
#pragma once

#include "hw/batch_norm/batch_norm_formulas.h"
#include "hw/batch_norm/sync_batch_norm.h"

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

BUCKETWISE_HOST_AND_DEVICE ChannelSums square_sums(const float* x, const BatchShape& shape,
                                                   const ColumnShare& share) {
    ChannelSums sums;
    for (std::int64_t row = share.first_row; row < shape.rows; row += share.step) {
        const double value = x[row * shape.channels + share.channel];
        sums.first += value;
        sums.second += value * value;
    }
    return sums;
}

BUCKETWISE_HOST_AND_DEVICE ChannelSums products_with_gradient(const float* dy, const float* x,
                                                              const BatchShape& shape,
                                                              const ChannelStatistics& statistics,
                                                              const ColumnShare& share) {
    ChannelSums sums;
    const double mean = statistics.mean[share.channel];
    for (std::int64_t row = share.first_row; row < shape.rows; row += share.step) {
        const std::int64_t i = row * shape.channels + share.channel;
        const double gradient = dy[i];
        sums.first += gradient;
        sums.second += gradient * (x[i] - mean);
    }
    return sums;
}

BUCKETWISE_HOST_AND_DEVICE void normalise_share(const float* x, const BatchShape& shape,
                                                const ChannelStatistics& statistics,
                                                const float* weight, const float* bias, float* y,
                                                const ColumnShare& share) {
    const std::int64_t c = share.channel;
    const float mean = statistics.mean[c];
    const float inverse = statistics.inverse[c];
    const float scale = weight[c];
    const float shift = bias[c];
    for (std::int64_t row = share.first_row; row < shape.rows; row += share.step) {
        const std::int64_t i = row * shape.channels + c;
        y[i] = normalised(x[i], mean, inverse, scale, shift);
    }
}

BUCKETWISE_HOST_AND_DEVICE void input_gradient_share(const float* dy, const float* x,
                                                     const BatchShape& shape,
                                                     const ChannelGradient& of_channel, float* dx,
                                                     const ColumnShare& share) {
    for (std::int64_t row = share.first_row; row < shape.rows; row += share.step) {
        const std::int64_t i = row * shape.channels + share.channel;
        dx[i] = input_gradient(dy[i], x[i], of_channel);
    }
}

}  // namespace bucketwise
