#include "hw/gpu/kernels/kernels.h"

#include "hw/gpu/kernels/kernel_bodies.h"
#include "hw/gpu/kernels/launch.h"

namespace bucketwise {
namespace {

constexpr int warp_threads = 32;
// For kernels whose warps take a chunk each: small blocks are shared out more evenly.
constexpr int chunk_block_threads = 128;
constexpr int chunk_block_warps = chunk_block_threads / warp_threads;

__device__ std::int64_t global_warp() {
    return global_thread() / warp_threads;
}

__device__ int lane_of_warp() {
    return static_cast<int>(threadIdx.x % warp_threads);
}

template <PackDirection direction, typename To, typename From>
__global__ void __launch_bounds__(chunk_block_threads)
    pack_kernel(const Chunk* __restrict__ chunks, std::int64_t count, double factor) {
    const std::int64_t warp = global_warp();
    if (warp < count) {
        pack_share<direction, To, From>(chunks[warp], factor, lane_of_warp(), warp_threads);
    }
}

// A warp takes a chunk, as in pack_kernel, so both reach the same bandwidth.
template <typename To, typename From>
__global__ void __launch_bounds__(chunk_block_threads)
    copy_kernel(To* to, const From* from, std::int64_t count, double factor) {
    const std::int64_t begin = global_warp() * chunk_elements;
    if (begin < count) {
        const std::int64_t left = count - begin;
        copy_share(to + begin, from + begin, left < chunk_elements ? left : chunk_elements, factor,
                   lane_of_warp(), warp_threads);
    }
}

template <typename To, typename From>
__global__ void __launch_bounds__(block_threads)
    add_kernel(To* to, const From* from, std::int64_t count) {
    add_share(to, from, count, global_thread(), all_threads());
}

template <typename T>
__global__ void __launch_bounds__(block_threads)
    outer_product_kernel(T* to, std::int64_t count, OuterProduct product, bool accumulate) {
    outer_product_share(to, count, product, accumulate, global_thread(), all_threads());
}

template <typename T>
__global__ void __launch_bounds__(block_threads)
    element_wise_kernel(T* y, const T* x, std::int64_t count) {
    element_wise_share(y, x, count, global_thread(), all_threads());
}

__global__ void __launch_bounds__(filler_block_threads)
    filler_kernel(float* sink, std::int64_t work) {
    filler_share(sink, work, global_thread());
}

template <typename T>
__global__ void __launch_bounds__(chunk_block_threads)
    optimizer_kernel(const Chunk* __restrict__ chunks, std::int64_t count, Optimizer optimizer,
                     OptimizerState state) {
    const std::int64_t warp = global_warp();
    if (warp < count) {
        optimizer_share<T>(chunks[warp], optimizer, state, lane_of_warp(), warp_threads);
    }
}

template <typename T>
__global__ void __launch_bounds__(chunk_block_threads)
    check_kernel(const Chunk* __restrict__ chunks, std::int64_t count,
                 const ExpectedProduct* __restrict__ expected, CheckResult* results) {
    const std::int64_t warp = global_warp();
    if (warp >= count) {
        return;
    }
    const Chunk chunk = chunks[warp];
    const ShareFound found =
        check_share<T>(chunk, expected[chunk.tensor_index], lane_of_warp(), warp_threads);
    // One lane for all: as many atomics to one address as threads would take longer than reading.
    double largest = found.largest_difference;
    // -1 is the largest unsigned number: no element is wrong.
    auto first = static_cast<unsigned long long>(found.first_wrong);
    for (int distance = warp_threads / 2; distance > 0; distance /= 2) {
        largest = fmax(largest, __shfl_down_sync(0xFFFFFFFF, largest, distance));
        const unsigned long long other = __shfl_down_sync(0xFFFFFFFF, first, distance);
        first = other < first ? other : first;
    }
    if (lane_of_warp() == 0) {
        CheckResult& result = results[chunk.tensor_index];
        atomicMax(reinterpret_cast<unsigned long long*>(&result.largest_difference_bits),
                  static_cast<unsigned long long>(__double_as_longlong(largest)));
        atomicMin(reinterpret_cast<unsigned long long*>(&result.first_wrong), first);
    }
}

__device__ std::int64_t nanoseconds_now() {
    std::int64_t now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void wait_for_flag_kernel(const volatile int* flag, int value, volatile int* gave_up) {
    const std::int64_t begin = nanoseconds_now();
    while (*flag < value) {
        __nanosleep(200);
        if (nanoseconds_now() - begin > flag_patience_ns) {
            *gave_up = 1;
            return;
        }
    }
}

// Calls launch(T{}), T the type of one element, if there is anything to do.
template <typename Launch>
void launch_of(DType dtype, std::int64_t count, const char* kernel, const Launch& launch) {
    if (count > 0) {
        with_element_type(dtype, launch);
        check_launch(kernel);
    }
}

}  // namespace

void launch_pack(cudaStream_t stream, PackDirection direction, const Chunk* chunks,
                 std::int64_t count, DType to_dtype, DType from_dtype, double factor) {
    launch_of(to_dtype, count, "pack_kernel", [&](auto to) {
        with_element_type(from_dtype, [&](auto from) {
            const auto kernel =
                direction == PackDirection::into_place
                    ? pack_kernel<PackDirection::into_place, decltype(to), decltype(from)>
                    : pack_kernel<PackDirection::out_of_place, decltype(to), decltype(from)>;
            kernel<<<blocks_for(count, chunk_block_warps), chunk_block_threads, 0, stream>>>(
                chunks, count, factor);
        });
    });
}

void launch_copy(cudaStream_t stream, void* to, DType to_dtype, const void* from, DType from_dtype,
                 std::int64_t count, double factor) {
    launch_of(to_dtype, count, "copy_kernel", [&](auto to_element) {
        with_element_type(from_dtype, [&](auto from_element) {
            using To = decltype(to_element);
            using From = decltype(from_element);
            const unsigned blocks = blocks_for(count, chunk_elements * chunk_block_warps);
            copy_kernel<To, From><<<blocks, chunk_block_threads, 0, stream>>>(
                static_cast<To*>(to), static_cast<const From*>(from), count, factor);
        });
    });
}

void launch_add(cudaStream_t stream, void* to, DType to_dtype, const void* from, DType from_dtype,
                std::int64_t count) {
    launch_of(to_dtype, count, "add_kernel", [&](auto to_element) {
        with_element_type(from_dtype, [&](auto from_element) {
            using To = decltype(to_element);
            using From = decltype(from_element);
            add_kernel<To, From>
                <<<striding_blocks(count, block_threads), block_threads, 0, stream>>>(
                    static_cast<To*>(to), static_cast<const From*>(from), count);
        });
    });
}

void launch_outer_product(cudaStream_t stream, void* to, DType dtype, std::int64_t count,
                          const OuterProduct& product, bool accumulate) {
    launch_of(dtype, count, "outer_product_kernel", [&](auto element) {
        using T = decltype(element);
        outer_product_kernel<<<striding_blocks(count, block_threads), block_threads, 0, stream>>>(
            static_cast<T*>(to), count, product, accumulate);
    });
}

void launch_element_wise(cudaStream_t stream, void* y, const void* x, DType dtype,
                         std::int64_t count) {
    launch_of(dtype, count, "element_wise_kernel", [&](auto element) {
        using T = decltype(element);
        element_wise_kernel<<<striding_blocks(count, block_threads * step_of<T, T>()),
                              block_threads, 0, stream>>>(static_cast<T*>(y),
                                                          static_cast<const T*>(x), count);
    });
}

void launch_filler(cudaStream_t stream, float* sink, std::int64_t work) {
    filler_kernel<<<filler_blocks, filler_block_threads, 0, stream>>>(sink, work);
    check_launch("filler_kernel");
}

void launch_optimizer(cudaStream_t stream, const Chunk* chunks, std::int64_t count,
                      DType gradient_dtype, Optimizer optimizer, const OptimizerState& state) {
    launch_of(gradient_dtype, count, "optimizer_kernel", [&](auto element) {
        optimizer_kernel<decltype(element)>
            <<<blocks_for(count, chunk_block_warps), chunk_block_threads, 0, stream>>>(
                chunks, count, optimizer, state);
    });
}

void launch_check(cudaStream_t stream, const Chunk* chunks, std::int64_t count, DType dtype,
                  const ExpectedProduct* expected, CheckResult* results) {
    launch_of(dtype, count, "check_kernel", [&](auto element) {
        check_kernel<decltype(element)>
            <<<blocks_for(count, chunk_block_warps), chunk_block_threads, 0, stream>>>(
                chunks, count, expected, results);
    });
}

void launch_wait_for_flag(cudaStream_t stream, const volatile int* flag, int value,
                          volatile int* gave_up) {
    wait_for_flag_kernel<<<1, 1, 0, stream>>>(flag, value, gave_up);
    check_launch("wait_for_flag_kernel");
}

}  // namespace bucketwise
