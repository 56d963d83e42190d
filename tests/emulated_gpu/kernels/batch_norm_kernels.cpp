// BatchNorm's kernels on the host: the same bodies as on a GPU, thread after thread, in stream
// order.
#include "hw/gpu/kernels/batch_norm_kernels.h"

#include <array>
#include <functional>
#include <utility>

#include "hw/gpu/kernels/batch_norm_bodies.h"
#include "hw/gpu/runtime/gpu_check.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace bucketwise {
namespace {

using emulated::alias;

// As a launch does, it reports what went wrong before, too.
void enqueue(cudaStream_t stream, std::function<void()> work) {
    emulated::enqueue(stream, std::move(work));
    check_gpu(cudaGetLastError(), "launch");
}

ChannelStatistics aliased(const ChannelStatistics& statistics) {
    return {.mean = alias(statistics.mean),
            .inverse = alias(statistics.inverse),
            .rows = alias(statistics.rows),
            .running_mean = alias(statistics.running_mean),
            .running_variance = alias(statistics.running_variance)};
}

// Fewer threads down a channel than a GPU has, and no divisor of anything.
constexpr std::int64_t row_step = 5;

template <typename Act>
void for_each_share(const BatchShape& shape, const Act& act) {
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
        for (std::int64_t row = 0; row < row_step; ++row) {
            act(ColumnShare{channel, row, row_step});
        }
    }
}

// What the threads down a channel come to, added as a block adds them.
template <typename Sum>
ChannelSums sum_of_block(std::int64_t channel, const Sum& sum) {
    ChannelSums sums;
    for (std::int64_t row = 0; row < sum_block_rows; ++row) {
        const ChannelSums own = sum(ColumnShare{channel, row, sum_block_rows});
        sums.first += own.first;
        sums.second += own.second;
    }
    return sums;
}

}  // namespace

void launch_local_statistics(cudaStream_t stream, const float* x, const BatchShape& shape,
                             float* to) {
    enqueue(stream, [=] {
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
            const ChannelSums sums = sum_of_block(channel, [&](const ColumnShare& share) {
                return square_sums(alias(x), shape, share);
            });
            store_local_statistics(sums, static_cast<double>(shape.rows), alias(to), shape.channels,
                                   channel);
        }
    });
}

void launch_local_sums(cudaStream_t stream, const float* x, const BatchShape& shape, double* to) {
    enqueue(stream, [=] {
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
            const ChannelSums sums = sum_of_block(channel, [&](const ColumnShare& share) {
                return square_sums(alias(x), shape, share);
            });
            store_local_sums(sums, static_cast<double>(shape.rows), alias(to), shape.channels,
                             channel);
        }
    });
}

void launch_combine(cudaStream_t stream, const float* gathered, int ranks, const BatchShape& shape,
                    const ChannelStatistics& to) {
    enqueue(stream, [=] {
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
            store_statistics(combined_moments(alias(gathered), ranks, shape.channels, channel),
                             aliased(to), channel);
        }
    });
}

void launch_statistics_of_sums(cudaStream_t stream, const double* sums, const BatchShape& shape,
                               const ChannelStatistics& to) {
    enqueue(stream, [=] {
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
            store_statistics(reduced_moments(alias(sums), shape.channels, channel), aliased(to),
                             channel);
        }
    });
}

void launch_normalise(cudaStream_t stream, const float* x, const BatchShape& shape,
                      const ChannelStatistics& statistics, const float* weight, const float* bias,
                      float* y) {
    enqueue(stream, [=] {
        for_each_share(shape, [&](const ColumnShare& share) {
            normalise_share(alias(x), shape, aliased(statistics), alias(weight), alias(bias),
                            alias(y), share);
        });
    });
}

void launch_gradient_sums(cudaStream_t stream, const float* dy, const float* x,
                          const BatchShape& shape, const ChannelStatistics& statistics,
                          GradientScale scale, const GradientSums& to) {
    enqueue(stream, [=] {
        const GradientSums target{.sums = alias(to.sums),
                                  .weight_gradient = alias(to.weight_gradient),
                                  .bias_gradient = alias(to.bias_gradient)};
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
            const ChannelSums sums = sum_of_block(channel, [&](const ColumnShare& share) {
                return products_with_gradient(alias(dy), alias(x), shape, aliased(statistics),
                                              share);
            });
            store_gradient_sums(sums, aliased(statistics), target, shape.channels, channel, scale);
        }
    });
}

void launch_input_gradients(cudaStream_t stream, const float* dy, const float* x,
                            const BatchShape& shape, const ChannelStatistics& statistics,
                            GradientScale scale, const float* sums, const float* weight,
                            float* dx) {
    enqueue(stream, [=] {
        for_each_share(shape, [&](const ColumnShare& share) {
            const ChannelGradient of_channel =
                channel_gradient(alias(sums), aliased(statistics), alias(weight), shape.channels,
                                 share.channel, scale);
            input_gradient_share(alias(dy), alias(x), shape, of_channel, alias(dx), share);
        });
    });
}

}  // namespace bucketwise
