// What BatchNorm computes of one channel and of one element, written once for the CPU and the GPU.
//
// Sums are kept in float64: a sum of squares of float32 values then loses nothing that the values
// had, whatever their mean, so variance = E[x^2] - E[x]^2 is as good as any other way.
#pragma once

#include <cmath>
#include <cstdint>

#include "hw/compute/both_sides.h"

namespace bucketwise {

// PyTorch's defaults.
constexpr double batch_norm_epsilon = 1e-5;
constexpr double batch_norm_momentum = 0.1;

// The moments of one channel over some rows.
struct ChannelMoments {
    double rows = 0;
    double mean = 0;
    double variance = 0;  // biased: over all rows
};

BUCKETWISE_BOTH_SIDES ChannelMoments moments_from_sums(double sum, double sum_of_squares,
                                                       double rows) {
    if (rows < 1) {
        return {};
    }
    const double mean = sum / rows;
    const double variance = sum_of_squares / rows - mean * mean;
    return {rows, mean, variance > 0 ? variance : 0.0};
}

BUCKETWISE_BOTH_SIDES double inverse_deviation(double variance) {
    return 1 / sqrt(variance + batch_norm_epsilon);
}

// Sums of one channel over this rank's rows. Forward: of x and x^2. Backward: of dy and of
// dy (x - mean).
struct ChannelSums {
    double first = 0;
    double second = 0;
};

BUCKETWISE_BOTH_SIDES ChannelSums square_terms(float x) {
    const double value = x;
    return {value, value * value};
}

// One row of an all-gather: [mean C, inverse standard deviation C, rows 1].
BUCKETWISE_BOTH_SIDES std::int64_t gathered_row(std::int64_t channels) {
    return 2 * channels + 1;
}

// Over all ranks, from each one's statistics, as PyTorch's batch_norm_gather_stats_with_counts:
// the pairwise update of Chan, Golub and LeVeque 1979. Ranks without rows do not count.
BUCKETWISE_BOTH_SIDES ChannelMoments combined_moments(const float* gathered, int ranks,
                                                      std::int64_t channels, std::int64_t channel) {
    ChannelMoments all;
    double squares = 0;  // of differences from the mean, summed
    for (int rank = 0; rank < ranks; ++rank) {
        const float* own = gathered + rank * gathered_row(channels);
        const double rows = own[2 * channels];
        if (rows < 1) {
            continue;
        }
        const double inverse = own[channels + channel];
        const double variance = 1 / (inverse * inverse) - batch_norm_epsilon;
        const double difference = own[channel] - all.mean;
        const double together = all.rows + rows;
        squares += (variance > 0 ? variance : 0.0) * rows +
                   difference * difference * all.rows * rows / together;
        all.mean += difference * rows / together;
        all.rows = together;
    }
    all.variance = all.rows < 1 ? 0.0 : squares / all.rows;
    return all;
}

// Where a layer keeps what it knows of its channels: C values each, `rows` one.
struct ChannelStatistics {
    float* mean = nullptr;
    float* inverse = nullptr;           // of the standard deviation
    float* rows = nullptr;              // of all ranks; exact up to 2^24
    float* running_mean = nullptr;      // over the steps so far, for evaluation
    float* running_variance = nullptr;  // unbiased
};

// Running statistics move towards this batch's, unless it is empty everywhere.
BUCKETWISE_BOTH_SIDES void store_statistics(const ChannelMoments& moments,
                                            const ChannelStatistics& to, std::int64_t channel) {
    to.mean[channel] = static_cast<float>(moments.mean);
    to.inverse[channel] = static_cast<float>(inverse_deviation(moments.variance));
    if (channel == 0) {
        *to.rows = static_cast<float>(moments.rows);
    }
    if (moments.rows < 1) {
        return;
    }
    const double unbiased =
        moments.variance * moments.rows / (moments.rows > 1 ? moments.rows - 1 : 1.0);
    to.running_mean[channel] = static_cast<float>(
        (1 - batch_norm_momentum) * to.running_mean[channel] + batch_norm_momentum * moments.mean);
    to.running_variance[channel] = static_cast<float>(
        (1 - batch_norm_momentum) * to.running_variance[channel] + batch_norm_momentum * unbiased);
}

// How backward's second sum is scaled: sum dy (x - mean), as PyTorch, or sum dy xhat.
enum class GradientScale : std::uint8_t { centred, normalised };

}  // namespace bucketwise
