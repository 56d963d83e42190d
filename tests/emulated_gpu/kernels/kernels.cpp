// The kernels of hw/nccl on the host: the same bodies as on a GPU, thread after thread, in stream
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

Chunk aliased(const Chunk& chunk) {
    Chunk result = chunk;
    result.tensor = alias(chunk.tensor);
    result.place = alias(chunk.place);
    return result;
}

template <typename Act>
void for_each_lane(const Chunk* chunks, std::int64_t count, const Act& act) {
    const Chunk* table = alias(chunks);
    for (std::int64_t i = 0; i < count; ++i) {
        const Chunk chunk = aliased(table[i]);
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
        OuterProduct aliased_product = product;
        aliased_product.rows = alias(product.rows);
        aliased_product.pattern = alias(product.pattern);
        with_element_type(dtype, [&](auto element) {
            for_each_thread([&](std::int64_t thread) {
                outer_product_share(static_cast<decltype(element)*>(alias(to)), count,
                                    aliased_product, accumulate, thread, grid_threads);
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
        const OptimizerState aliased_state{.first_moments = alias(state.first_moments),
                                           .second_moments = alias(state.second_moments),
                                           .parameters = alias(state.parameters)};
        with_element_type(gradient_dtype, [&](auto element) {
            for_each_lane(chunks, count, [&](const Chunk& chunk, std::int64_t lane) {
                optimizer_share<decltype(element)>(chunk, optimizer, aliased_state, lane,
                                                   warp_threads);
            });
        });
    });
}

void launch_check(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType dtype,
                  const ExpectedProduct* expected, CheckResult* results) {
    enqueue(stream, [=] {
        with_element_type(dtype, [&](auto element) {
            for_each_lane(chunks, count, [&](const Chunk& chunk, std::int64_t lane) {
                ExpectedProduct product = alias(expected)[chunk.tensor_index];
                product.rows = alias(product.rows);
                product.pattern = alias(product.pattern);
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

}  // namespace bucketwise
