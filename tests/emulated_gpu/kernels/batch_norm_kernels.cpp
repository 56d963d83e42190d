// BatchNorm's kernels on the host: the same bodies as on a GPU, thread after thread, in stream
// order.
#include "hw/gpu/kernels/batch_norm_kernels.h"

#include <array>
#include <functional>
#include <utility>

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

LocalStatistics aliased(LocalStatistics pass) {
    pass.x = alias(pass.x);
    pass.to = alias(pass.to);
    return pass;
}

LocalSums aliased(LocalSums pass) {
    pass.x = alias(pass.x);
    pass.to = alias(pass.to);
    return pass;
}

GradientSums aliased(GradientSums pass) {
    pass.dy = alias(pass.dy);
    pass.x = alias(pass.x);
    pass.statistics = aliased(pass.statistics);
    pass.sums = alias(pass.sums);
    pass.weight_gradient = alias(pass.weight_gradient);
    pass.bias_gradient = alias(pass.bias_gradient);
    return pass;
}

CombineStatistics aliased(CombineStatistics pass) {
    pass.gathered = alias(pass.gathered);
    pass.to = aliased(pass.to);
    return pass;
}

StatisticsOfSums aliased(StatisticsOfSums pass) {
    pass.sums = alias(pass.sums);
    pass.to = aliased(pass.to);
    return pass;
}

Normalise aliased(Normalise pass) {
    pass.x = alias(pass.x);
    pass.statistics = aliased(pass.statistics);
    pass.weight = alias(pass.weight);
    pass.bias = alias(pass.bias);
    pass.y = alias(pass.y);
    return pass;
}

InputGradients aliased(InputGradients pass) {
    pass.dy = alias(pass.dy);
    pass.x = alias(pass.x);
    pass.statistics = aliased(pass.statistics);
    pass.sums = alias(pass.sums);
    pass.weight = alias(pass.weight);
    pass.dx = alias(pass.dx);
    return pass;
}

// Fewer threads down a channel than a GPU has, and no divisor of anything.
constexpr std::int64_t row_step = 5;

// The sums of the threads down a channel, added like a block.
template <typename Pass>
ChannelSums sum_of_block(const Pass& pass, std::int64_t channel) {
    ChannelSums sums;
    for (std::int64_t row = 0; row < sum_block_rows; ++row) {
        const ChannelSums own = sums_of_share(pass, ColumnShare{channel, row, sum_block_rows});
        sums.first += own.first;
        sums.second += own.second;
    }
    return sums;
}

template <typename Pass>
void go_over_channel(const Pass& pass, std::int64_t channel) {
    if constexpr (SumsRows<Pass>) {
        pass.store(sum_of_block(pass, channel), channel);
    } else if constexpr (WritesElements<Pass>) {
        for (std::int64_t row = 0; row < row_step; ++row) {
            write_share(pass, ColumnShare{channel, row, row_step});
        }
    } else {
        pass.of_channel(channel);
    }
}

}  // namespace

void launch_batch_norm(cudaStream_t stream, const BatchNormPass& pass) {
    std::visit(
        [stream](const auto& on_device) {
            enqueue(stream, [on_device] {
                const auto one = aliased(on_device);
                for (std::int64_t channel = 0; channel < one.shape.channels; ++channel) {
                    go_over_channel(one, channel);
                }
            });
        },
        pass);
}

}  // namespace bucketwise
