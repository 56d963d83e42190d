// BatchNorm in float64 over the batches of all ranks put together, written out from its definition:
// what a synchronised layer must come to. Includes nothing of the layer but its values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "hw/batch_norm/sync_batch_norm.h"

namespace bucketwise::testing {

// The values of rank r have a mean of `offset` + r / 2 and a deviation of about `deviation`.
struct BatchNormCase {
    std::vector<std::int64_t> rows;  // by rank
    std::int64_t channels = 1;
    double offset = 0;
    double deviation = 1;
};

inline std::vector<float> drawn(std::int64_t count, std::mt19937_64& random, double offset,
                                double deviation) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
        // Sum of four uniforms: near enough to normal, and the same everywhere.
        double sum = 0;
        for (int k = 0; k < 4; ++k) {
            sum += static_cast<double>(random() >> 11U) * 0x1p-53 - 0.5;
        }
        values.push_back(static_cast<float>(offset + deviation * std::sqrt(3.0) * sum));
    }
    return values;
}

// Weight and bias are the same on every rank.
inline BatchNormValues values_of(const BatchNormCase& c, int rank) {
    BatchNormValues values;
    values.shape = {c.rows.at(static_cast<std::size_t>(rank)), c.channels};
    std::mt19937_64 own(static_cast<std::uint64_t>(1000 + rank));
    // A mean of its own on each rank: what the ranks' statistics differ in must not be lost.
    values.input = drawn(values.shape.elements(), own, c.offset + 0.5 * rank, c.deviation);
    values.output_gradient = drawn(values.shape.elements(), own, 0.1, 1);
    std::mt19937_64 common(7);
    values.weight = drawn(c.channels, common, 1, 0.3);
    values.bias = drawn(c.channels, common, 0, 1);
    return values;
}

struct BatchNormReference {
    std::vector<std::vector<double>> output;  // by rank, [rows, channels]
    std::vector<std::vector<double>> input_gradient;
    std::vector<double> weight_gradient;  // over all ranks
    std::vector<double> bias_gradient;
    std::vector<double> running_mean;  // after one step
    std::vector<double> running_variance;
    double smallest_deviation = HUGE_VAL;  // of any channel, over the whole batch
};

inline BatchNormReference reference_of(const BatchNormCase& c) {
    std::vector<BatchNormValues> ranks;
    BatchNormReference result;
    double n = 0;
    for (int rank = 0; rank < static_cast<int>(c.rows.size()); ++rank) {
        ranks.push_back(values_of(c, rank));
        n += static_cast<double>(ranks.back().shape.rows);
        result.output.emplace_back(ranks.back().input.size());
        result.input_gradient.emplace_back(ranks.back().input.size());
    }
    const auto channels = static_cast<std::size_t>(c.channels);
    for (std::size_t channel = 0; channel < channels; ++channel) {
        // Calls act(rank, index of the element) for every row of the whole batch.
        const auto for_each = [&](const auto& act) {
            for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
                for (std::size_t i = channel; i < ranks[rank].input.size(); i += channels) {
                    act(rank, i);
                }
            }
        };
        double mean = 0;
        for_each([&](std::size_t r, std::size_t i) { mean += ranks[r].input[i] / n; });
        double variance = 0;
        for_each([&](std::size_t r, std::size_t i) {
            variance += (ranks[r].input[i] - mean) * (ranks[r].input[i] - mean) / n;
        });
        const double deviation = std::sqrt(variance + 1e-5);
        result.smallest_deviation = std::min(result.smallest_deviation, deviation);
        const double weight = ranks[0].weight[channel];
        const auto xhat = [&](std::size_t r, std::size_t i) {
            return (ranks[r].input[i] - mean) / deviation;
        };
        double sum_dy = 0;
        double sum_dy_xhat = 0;
        for_each([&](std::size_t r, std::size_t i) {
            sum_dy += ranks[r].output_gradient[i];
            sum_dy_xhat += ranks[r].output_gradient[i] * xhat(r, i);
            result.output[r][i] = xhat(r, i) * weight + ranks[r].bias[channel];
        });
        for_each([&](std::size_t r, std::size_t i) {
            result.input_gradient[r][i] =
                (ranks[r].output_gradient[i] - sum_dy / n - xhat(r, i) * sum_dy_xhat / n) * weight /
                deviation;
        });
        result.weight_gradient.push_back(sum_dy_xhat);
        result.bias_gradient.push_back(sum_dy);
        // torch.nn.BatchNorm1d: momentum 0.1, from 0 and 1, the variance unbiased.
        result.running_mean.push_back(n > 0 ? 0.1 * mean : 0.0);
        result.running_variance.push_back(n > 0 ? 0.9 + 0.1 * variance * n / std::max(n - 1, 1.0)
                                                : 1.0);
    }
    return result;
}

// The largest of |a - b|; infinite where one is not a number or sizes differ.
inline double furthest(const std::vector<float>& a, const std::vector<double>& b) {
    double largest = a.size() == b.size() ? 0.0 : HUGE_VAL;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        const double difference = std::fabs(a[i] - b[i]);
        largest = difference <= HUGE_VAL ? std::max(largest, difference) : HUGE_VAL;
    }
    return largest;
}

// The first value further off than rounding explains; empty: none. `results` by rank.
//
// u = 2^-24 is float32's rounding, and the deviation that of the channel where it is least: few
// rows may lie close together. An output (x - mean) / deviation * weight + bias has |xhat|, |w| and
// |b| of at most about 4 here; the mean is off by u |mean|, which counts as that many u /
// deviation, and each of the few operations adds one u: 64 u (1 + |mean| / deviation) has room. An
// input gradient is that of order 4 / deviation. Sums over n rows of terms up to 16 are rounded
// once per rank, but their xhat are each off as the outputs are.
inline std::string what_is_wrong(const BatchNormCase& c,
                                 const std::vector<BatchNormResult>& results) {
    constexpr double u = 0x1p-24;
    const BatchNormReference expected = reference_of(c);
    const double size = std::fabs(c.offset) + 0.5 * static_cast<double>(c.rows.size());
    const double deviation = std::min(expected.smallest_deviation, 1.0);
    const double tolerance = 64 * u * (1 + size / deviation);
    double n = 1;
    for (const std::int64_t rows : c.rows) {
        n += static_cast<double>(rows);
    }
    std::string wrong;
    const auto check = [&](const char* what, double difference, double allowed) {
        if (!(difference <= allowed)) {
            wrong += fmt::format("{} off by {:.3g}, allowed {:.3g}\n", what, difference, allowed);
        }
    };
    std::vector<float> weight(static_cast<std::size_t>(c.channels));
    std::vector<float> bias(static_cast<std::size_t>(c.channels));
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
        const BatchNormResult& own = results[rank];
        check("output", furthest(own.output, expected.output[rank]), tolerance);
        check("input gradient", furthest(own.input_gradient, expected.input_gradient[rank]),
              tolerance / deviation);
        check("running mean", furthest(own.running_mean, expected.running_mean),
              4 * u * (size + c.deviation));
        check("running variance", furthest(own.running_variance, expected.running_variance),
              tolerance * (1 + c.deviation * c.deviation + size));
        for (std::size_t i = 0; i < weight.size(); ++i) {
            weight[i] += own.weight_gradient.at(i);
            bias[i] += own.bias_gradient.at(i);
        }
    }
    check("weight gradient", furthest(weight, expected.weight_gradient), n * tolerance);
    check("bias gradient", furthest(bias, expected.bias_gradient), n * tolerance);
    return wrong;
}

// Batches that are all alike, that differ, that end with an empty one, and that have one row.
inline std::vector<BatchNormCase> cases_on(int ranks) {
    const auto count = static_cast<std::size_t>(ranks);
    std::vector<std::int64_t> uneven;
    std::vector<std::int64_t> last_empty(count, 5);
    last_empty.back() = 0;
    std::vector<std::int64_t> first_only(count, 0);
    first_only.front() = 9;
    for (int rank = 0; rank < ranks; ++rank) {
        uneven.push_back(3 + 4 * rank);
    }
    return {{.rows = std::vector<std::int64_t>(count, 32), .channels = 128},
            {.rows = uneven, .channels = 65},  // more than a strip of channels, and ragged
            {.rows = uneven, .channels = 1},
            {.rows = last_empty, .channels = 33},
            {.rows = first_only, .channels = 7},
            {.rows = std::vector<std::int64_t>(count, 0), .channels = 3},
            {.rows = std::vector<std::int64_t>(count, 1), .channels = 5},
            {.rows = uneven, .channels = 17, .offset = 1000, .deviation = 0.5},
            {.rows = uneven, .channels = 17, .offset = -3, .deviation = 1e-3},
            {.rows = std::vector<std::int64_t>(count, 300), .channels = 70, .offset = 5}};
}

}  // namespace bucketwise::testing
