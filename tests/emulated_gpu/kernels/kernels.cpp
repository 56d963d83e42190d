// Our kernels on the host: the same bodies as on a GPU, thread after thread, in stream
// order.
#include "hw/gpu/kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "hw/gpu/kernels/kernel_bodies.h"
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

constexpr std::int64_t warp_threads = 32;
// Fewer than a GPU has, and no divisor of anything, so that strides and ragged ends are gone
// through.
constexpr std::int64_t grid_threads = 96;
constexpr std::chrono::nanoseconds filler_turn{3};  // about what a processor would need for it

// `value` with the host's addresses in these members.
template <typename T, typename... Pointers>
T aliased(T value, Pointers T::*... members) {
    ((value.*members = alias(value.*members)), ...);
    return value;
}

template <typename Act>
void for_each_lane(const Chunk* chunks, std::int64_t count, const Act& act) {
    const Chunk* table = alias(chunks);
    for (std::int64_t i = 0; i < count; ++i) {
        const Chunk chunk = aliased(table[i], &Chunk::tensor, &Chunk::place);
        for (std::int64_t lane = 0; lane < warp_threads; ++lane) {
            act(chunk, lane);
        }
    }
}

template <typename Act>
void for_each_thread(const Act& act) {
    for (std::int64_t thread = 0; thread < grid_threads; ++thread) {
        act(thread);
    }
}

template <PackDirection direction>
void put_chunks(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType to_dtype,
                DType from_dtype, double factor) {
    enqueue(stream, [=] {
        with_element_type(to_dtype, [&](auto to) {
            with_element_type(from_dtype, [&](auto from) {
                for_each_lane(chunks, count, [&](const Chunk& chunk, std::int64_t lane) {
                    pack_share<direction, decltype(to), decltype(from)>(chunk, factor, lane,
                                                                        warp_threads);
                });
            });
        });
    });
}

}  // namespace

void launch_pack(cudaStream_t stream, PackDirection direction, const Chunk* chunks,
                 std::int64_t count, DType to_dtype, DType from_dtype, double factor) {
    const auto put = direction == PackDirection::into_place
                         ? put_chunks<PackDirection::into_place>
                         : put_chunks<PackDirection::out_of_place>;
    put(stream, chunks, count, to_dtype, from_dtype, factor);
}

void launch_copy(cudaStream_t stream, void* to, DType to_dtype, const void* from, DType from_dtype,
                 std::int64_t count, double factor) {
    enqueue(stream, [=] {
        with_element_type(to_dtype, [&](auto to_element) {
            with_element_type(from_dtype, [&](auto from_element) {
                auto* target = static_cast<decltype(to_element)*>(alias(to));
                const auto* source = static_cast<const decltype(from_element)*>(alias(from));
                for (std::int64_t begin = 0; begin < count; begin += chunk_elements) {
                    for (std::int64_t lane = 0; lane < warp_threads; ++lane) {
                        copy_share(target + begin, source + begin,
                                   std::min(chunk_elements, count - begin), factor, lane,
                                   warp_threads);
                    }
                }
            });
        });
    });
}

void launch_add(cudaStream_t stream, void* to, DType to_dtype, const void* from, DType from_dtype,
                std::int64_t count) {
    enqueue(stream, [=] {
        with_element_type(to_dtype, [&](auto to_element) {
            with_element_type(from_dtype, [&](auto from_element) {
                for_each_thread([&](std::int64_t thread) {
                    add_share(static_cast<decltype(to_element)*>(alias(to)),
                              static_cast<const decltype(from_element)*>(alias(from)), count,
                              thread, grid_threads);
                });
            });
        });
    });
}

void launch_outer_product(cudaStream_t stream, void* to, DType dtype, std::int64_t count,
                          const OuterProduct& product, bool accumulate) {
    enqueue(stream, [=] {
        const OuterProduct on_host = aliased(product, &OuterProduct::rows, &OuterProduct::pattern);
        with_element_type(dtype, [&](auto element) {
            for_each_thread([&](std::int64_t thread) {
                outer_product_share(static_cast<decltype(element)*>(alias(to)), count, on_host,
                                    accumulate, thread, grid_threads);
            });
        });
    });
}

void launch_element_wise(cudaStream_t stream, void* y, const void* x, DType dtype,
                         std::int64_t count) {
    enqueue(stream, [=] {
        with_element_type(dtype, [&](auto element) {
            using T = decltype(element);
            for_each_thread([&](std::int64_t thread) {
                element_wise_share(static_cast<T*>(alias(y)), static_cast<const T*>(alias(x)),
                                   count, thread, grid_threads);
            });
        });
    });
}

// The time, not the arithmetic, is emulated: as a GPU does it beside the host, it takes none of the
// processors that the host's threads share.
void launch_filler(cudaStream_t stream, float* sink, std::int64_t work) {
    enqueue(stream, [=] {
        const auto begin = std::chrono::steady_clock::now();
        filler_share(alias(sink), 0, 0);
        std::this_thread::sleep_until(begin + work * filler_turn);
    });
}

void launch_optimizer(cudaStream_t stream, const Chunk* chunks, std::int64_t count,
                      DType gradient_dtype, Optimizer optimizer, const OptimizerState& state) {
    enqueue(stream, [=] {
        const OptimizerState on_host =
            aliased(state, &OptimizerState::first_moments, &OptimizerState::second_moments,
                    &OptimizerState::parameters);
        with_element_type(gradient_dtype, [&](auto element) {
            for_each_lane(chunks, count, [&](const Chunk& chunk, std::int64_t lane) {
                optimizer_share<decltype(element)>(chunk, optimizer, on_host, lane, warp_threads);
            });
        });
    });
}

void launch_check(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType dtype,
                  const ExpectedProduct* expected, CheckResult* results) {
    enqueue(stream, [=] {
        with_element_type(dtype, [&](auto element) {
            for_each_lane(chunks, count, [&](const Chunk& chunk, std::int64_t lane) {
                const ExpectedProduct product =
                    aliased(alias(expected)[chunk.tensor_index], &ExpectedProduct::rows,
                            &ExpectedProduct::pattern);
                const ShareFound found =
                    check_share<decltype(element)>(chunk, product, lane, warp_threads);
                CheckResult& result = alias(results)[chunk.tensor_index];
                result.largest_difference_bits =
                    std::max(result.largest_difference_bits,
                             std::bit_cast<std::uint64_t>(found.largest_difference));
                result.first_wrong = static_cast<std::int64_t>(
                    std::min(static_cast<std::uint64_t>(result.first_wrong),
                             static_cast<std::uint64_t>(found.first_wrong)));
            });
        });
    });
}

void launch_wait_for_flag(cudaStream_t stream, const volatile int* flag, int value,
                          volatile int* gave_up) {
    enqueue(stream, [=] {
        const auto begin = std::chrono::steady_clock::now();
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < value) {
            std::this_thread::yield();
            if (std::chrono::steady_clock::now() - begin >
                std::chrono::nanoseconds{flag_patience_ns}) {
                __atomic_store_n(gave_up, 1, __ATOMIC_RELEASE);
                return;
            }
        }
    });
}

// --- training ---

namespace {

Gather on_host(const Gather& pass) {
    return aliased(pass, &Gather::to, &Gather::images, &Gather::order);
}
AddBias on_host(const AddBias& pass) {
    return aliased(pass, &AddBias::x, &AddBias::bias);
}
Relu on_host(const Relu& pass) {
    return aliased(pass, &Relu::x);
}
ReluGradient on_host(const ReluGradient& pass) {
    return aliased(pass, &ReluGradient::gradient, &ReluGradient::activation);
}
ColumnSums on_host(const ColumnSums& pass) {
    return aliased(pass, &ColumnSums::sums, &ColumnSums::x);
}
CrossEntropy on_host(const CrossEntropy& pass) {
    return aliased(pass, &CrossEntropy::logits, &CrossEntropy::gradient, &CrossEntropy::losses,
                   &CrossEntropy::correct, &CrossEntropy::labels, &CrossEntropy::order);
}
SgdStep on_host(const SgdStep& pass) {
    return aliased(pass, &SgdStep::parameters, &SgdStep::gradients, &SgdStep::moments);
}

}  // namespace

void launch_training(cudaStream_t stream, const TrainingPass& pass) {
    std::visit(
        [stream](const auto& on_device) {
            enqueue(stream, [on_device] {
                const auto one = on_host(on_device);
                constexpr std::int64_t threads = grid_threads + 1;  // divides nothing either
                for (std::int64_t thread = 0; thread < threads; ++thread) {
                    one(thread, threads);
                }
            });
        },
        pass);
}

// --- BatchNorm ---

namespace {

ChannelStatistics on_host(const ChannelStatistics& statistics) {
    using S = ChannelStatistics;
    return aliased(statistics, &S::mean, &S::inverse, &S::rows, &S::running_mean,
                   &S::running_variance);
}
LocalStatistics on_host(const LocalStatistics& pass) {
    return aliased(pass, &LocalStatistics::x, &LocalStatistics::to);
}
LocalSums on_host(const LocalSums& pass) {
    return aliased(pass, &LocalSums::x, &LocalSums::to);
}
GradientSums on_host(GradientSums pass) {
    pass.statistics = on_host(pass.statistics);
    return aliased(pass, &GradientSums::dy, &GradientSums::x, &GradientSums::sums,
                   &GradientSums::weight_gradient, &GradientSums::bias_gradient);
}
CombineStatistics on_host(CombineStatistics pass) {
    pass.to = on_host(pass.to);
    return aliased(pass, &CombineStatistics::gathered);
}
StatisticsOfSums on_host(StatisticsOfSums pass) {
    pass.to = on_host(pass.to);
    return aliased(pass, &StatisticsOfSums::sums);
}
Normalise on_host(Normalise pass) {
    pass.statistics = on_host(pass.statistics);
    return aliased(pass, &Normalise::x, &Normalise::weight, &Normalise::bias, &Normalise::y);
}
InputGradients on_host(InputGradients pass) {
    pass.statistics = on_host(pass.statistics);
    return aliased(pass, &InputGradients::dy, &InputGradients::x, &InputGradients::sums,
                   &InputGradients::weight, &InputGradients::dx);
}

// Fewer threads down a channel than a GPU has, and no divisor of anything.
constexpr std::int64_t row_step = 5;

// The sums of the threads down a channel, added as a block adds them.
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
                const auto one = on_host(on_device);
                for (std::int64_t channel = 0; channel < one.shape.channels; ++channel) {
                    go_over_channel(one, channel);
                }
            });
        },
        pass);
}

}  // namespace bucketwise
