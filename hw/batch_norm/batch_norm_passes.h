// BatchNorm's passes over one rank's batch, [rows, channels], each as what it makes of a channel or
// of an element: how a device goes over them is its own. All matrices are row-major.
#pragma once

#include <cmath>
#include <cstdint>
#include <variant>

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

// The size of one rank's batch.
struct BatchShape {
    std::int64_t rows = 0;
    std::int64_t channels = 1;
    bool operator==(const BatchShape&) const = default;

    [[nodiscard]] std::int64_t elements() const { return rows * channels; }
};

// --- sums over rows: the terms of an element, and where a channel's sums go ---

// [mean C, inverse deviation C, rows 1] of this rank's batch, its part of the all-gather. A mean
// and a deviation of no rows count for nothing: zeros.
struct LocalStatistics {
    static constexpr const char* kernel = "local_statistics_kernel";
    BatchShape shape;
    const float* x;
    float* to;

    BUCKETWISE_BOTH_SIDES ChannelSums terms(std::int64_t element, std::int64_t /*channel*/) const {
        return square_terms(x[element]);
    }
    BUCKETWISE_BOTH_SIDES void store(const ChannelSums& sums, std::int64_t channel) const {
        const auto rows = static_cast<double>(shape.rows);
        const ChannelMoments moments = moments_from_sums(sums.first, sums.second, rows);
        to[channel] = static_cast<float>(moments.mean);
        to[shape.channels + channel] =
            rows < 1 ? 0.0F : static_cast<float>(inverse_deviation(moments.variance));
        if (channel == 0) {
            to[2 * shape.channels] = static_cast<float>(rows);
        }
    }
};

// [sum x C, sum x^2 C, rows 1], this rank's part of the fused all-reduce.
struct LocalSums {
    static constexpr const char* kernel = "local_sums_kernel";
    BatchShape shape;
    const float* x;
    double* to;

    BUCKETWISE_BOTH_SIDES ChannelSums terms(std::int64_t element, std::int64_t /*channel*/) const {
        return square_terms(x[element]);
    }
    BUCKETWISE_BOTH_SIDES void store(const ChannelSums& sums, std::int64_t channel) const {
        to[channel] = sums.first;
        to[shape.channels + channel] = sums.second;
        if (channel == 0) {
            to[2 * shape.channels] = static_cast<double>(shape.rows);
        }
    }
};

// Backward's sums from this rank alone: [sum dy C, second sum C] to be all-reduced, and the
// gradients of weight and bias, which data-parallel training averages later.
struct GradientSums {
    static constexpr const char* kernel = "gradient_sums_kernel";
    BatchShape shape;
    const float* dy;
    const float* x;
    ChannelStatistics statistics;
    GradientScale scale;
    float* sums;
    float* weight_gradient;
    float* bias_gradient;

    BUCKETWISE_BOTH_SIDES ChannelSums terms(std::int64_t element, std::int64_t channel) const {
        const double gradient = dy[element];
        const double mean = statistics.mean[channel];
        return {gradient, gradient * (x[element] - mean)};
    }
    BUCKETWISE_BOTH_SIDES void store(const ChannelSums& of_channel, std::int64_t channel) const {
        const double normalised_sum = of_channel.second * statistics.inverse[channel];
        sums[channel] = static_cast<float>(of_channel.first);
        sums[shape.channels + channel] = static_cast<float>(
            scale == GradientScale::normalised ? normalised_sum : of_channel.second);
        weight_gradient[channel] = static_cast<float>(normalised_sum);
        bias_gradient[channel] = static_cast<float>(of_channel.first);
    }
};

// --- statistics over all ranks, channel by channel ---

// The statistics of all ranks from the local ones, which stand one after another.
struct CombineStatistics {
    static constexpr const char* kernel = "combine_kernel";
    BatchShape shape;
    const float* gathered;
    int ranks;
    ChannelStatistics to;

    BUCKETWISE_BOTH_SIDES void of_channel(std::int64_t channel) const {
        store_statistics(combined_moments(gathered, ranks, shape.channels, channel), to, channel);
    }
};

// The statistics of all ranks from their LocalSums, added up.
struct StatisticsOfSums {
    static constexpr const char* kernel = "statistics_of_sums_kernel";
    BatchShape shape;
    const double* sums;
    ChannelStatistics to;

    BUCKETWISE_BOTH_SIDES void of_channel(std::int64_t channel) const {
        store_statistics(moments_from_sums(sums[channel], sums[shape.channels + channel],
                                           sums[2 * shape.channels]),
                         to, channel);
    }
};

// --- every element, by what is known of its channel ---

// y = (x - mean) / deviation * weight + bias
struct Normalise {
    static constexpr const char* kernel = "normalise_kernel";
    BatchShape shape;
    const float* x;
    ChannelStatistics statistics;
    const float* weight;
    const float* bias;
    float* y;

    struct Channel {
        float mean;
        float inverse;
        float weight;
        float bias;
    };
    [[nodiscard]] BUCKETWISE_BOTH_SIDES Channel known_of(std::int64_t channel) const {
        return {statistics.mean[channel], statistics.inverse[channel], weight[channel],
                bias[channel]};
    }
    BUCKETWISE_BOTH_SIDES void write(std::int64_t element, const Channel& c) const {
        y[element] = (x[element] - c.mean) * c.inverse * c.weight + c.bias;
    }
};

// dx = (dy - mean dy - (x - mean) slope) weight / standard deviation. `sums` are of all ranks
// together: [sum dy C, second sum C].
struct InputGradients {
    static constexpr const char* kernel = "input_gradients_kernel";
    BatchShape shape;
    const float* dy;
    const float* x;
    ChannelStatistics statistics;
    GradientScale scale;
    const float* sums;
    const float* weight;
    float* dx;

    // Its mean gradient, and what each row's distance from the mean takes off the gradient.
    struct Channel {
        float mean;        // of dy
        float slope;       // of dy over x - mean
        float factor;      // weight / standard deviation
        float batch_mean;  // of x
    };
    [[nodiscard]] BUCKETWISE_BOTH_SIDES Channel known_of(std::int64_t channel) const {
        const double rows = *statistics.rows;
        const double inverse = statistics.inverse[channel];
        const double power = scale == GradientScale::normalised ? inverse : inverse * inverse;
        return {static_cast<float>(sums[channel] / rows),
                static_cast<float>(sums[shape.channels + channel] / rows * power),
                static_cast<float>(weight[channel] * inverse), statistics.mean[channel]};
    }
    BUCKETWISE_BOTH_SIDES void write(std::int64_t element, const Channel& c) const {
        dx[element] = (dy[element] - c.mean - (x[element] - c.batch_mean) * c.slope) * c.factor;
    }
};

using BatchNormPass = std::variant<LocalStatistics, LocalSums, GradientSums, CombineStatistics,
                                   StatisticsOfSums, Normalise, InputGradients>;

template <typename Pass>
concept SumsRows = requires(const Pass& pass) {
    pass.terms(0, 0);
};
template <typename Pass>
concept WritesElements = requires(const Pass& pass) {
    pass.known_of(0);
};

}  // namespace bucketwise
