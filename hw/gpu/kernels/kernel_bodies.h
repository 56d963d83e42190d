// The computing of one thread of each kernel, as plain functions of its place: the GPU runs them in
// kernels.cu, a host without one runs them thread by thread to test them.
//
// Memory is touched 16 bytes at a time where both sides are aligned, which is what a warp needs to
// come near the memory's bandwidth; element by element at ragged ends. A place in a bucket is
// aligned only if all tensors before it hold whole 16 bytes; else its elements go one by one, each
// lane beside its neighbours, many of them in flight.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hw/batch_norm/batch_norm_passes.h"
#include "hw/compute/both_sides.h"
#include "hw/gpu/kernels/kernel_arguments.h"
#include "sim/base/dtype.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// --- elements ---

// Calls function(T{}), T the type of one element.
template <typename Function>
void with_element_type(DType dtype, const Function& function) {
    switch (dtype) {
        case DType::float16:
            return function(__half{});
        case DType::bfloat16:
            return function(__nv_bfloat16{});
        case DType::float64:
            return function(double{});
        case DType::float32:
            break;
    }
    return function(float{});
}

template <typename T>
using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename W, typename T>
BUCKETWISE_BOTH_SIDES W widened(T value) {
    if constexpr (std::is_same_v<T, __half>) {
        return static_cast<W>(__half2float(value));
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return static_cast<W>(__bfloat162float(value));
    } else {
        return static_cast<W>(value);
    }
}

template <typename T, typename W>
BUCKETWISE_BOTH_SIDES T narrowed(W value) {
    if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(static_cast<float>(value));
    } else {
        return static_cast<T>(value);
    }
}

constexpr std::int64_t word_of_16_bytes = 16;

template <typename T, std::size_t N>
struct alignas(sizeof(T) * N >= 16 ? 16 : sizeof(T) * N) Several {
    T values[N];
};

template <typename T>
BUCKETWISE_BOTH_SIDES bool is_aligned(const T* data) {
    return reinterpret_cast<std::uintptr_t>(data) % word_of_16_bytes == 0;
}

// The elements that fill 16 bytes on the narrower side.
template <typename To, typename From>
BUCKETWISE_BOTH_SIDES constexpr std::int64_t step_of() {
    return 16 / (sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
}

// Pointers that come out of a table: the compiler cannot see that they are to device memory.
#if defined(__CUDA_ARCH__)
#define BUCKETWISE_ASSUME_GLOBAL(pointer) __builtin_assume(__isGlobal(pointer))
#else
#define BUCKETWISE_ASSUME_GLOBAL(pointer) static_cast<void>(pointer)
#endif

// --- copies ---

// to[i] = factor * from[i], this lane's share of i < count. All reads of a turn come before its
// writes, so that they are in flight together.
template <typename To, typename From>
BUCKETWISE_BOTH_SIDES void copy_share(To* to, const From* from, std::int64_t count, double factor,
                                      std::int64_t lane, std::int64_t lanes) {
    using W = Computed<std::conditional_t<std::is_same_v<To, double>, To, From>>;
    BUCKETWISE_ASSUME_GLOBAL(to);
    BUCKETWISE_ASSUME_GLOBAL(from);
    constexpr auto step = step_of<To, From>();
    using Read = Several<From, step>;
    using Written = Several<To, step>;
    constexpr int turns = 4;
    const auto scale = static_cast<W>(factor);
    // By value, so that a word is read at once.
    const auto cast = [scale](Read read) {
        Written written;
        for (int i = 0; i < step; ++i) {
            written.values[i] = narrowed<To>(scale * widened<W>(read.values[i]));
        }
        return written;
    };
    std::int64_t done = 0;
    if (is_aligned(to) && is_aligned(from)) {
        const auto* in = reinterpret_cast<const Read*>(from);
        auto* out = reinterpret_cast<Written*>(to);
        const std::int64_t words = count / step;
        std::int64_t word = lane;
        for (; word + (turns - 1) * lanes < words; word += turns * lanes) {
            Read read[turns];
            for (int turn = 0; turn < turns; ++turn) {
                read[turn] = in[word + turn * lanes];
            }
            for (int turn = 0; turn < turns; ++turn) {
                out[word + turn * lanes] = cast(read[turn]);
            }
        }
        for (; word < words; word += lanes) {
            out[word] = cast(in[word]);
        }
        done = words * step;
    }
    // Narrow elements need more turns to have as many bytes in flight.
    constexpr std::size_t in_flight = sizeof(From) <= 4 ? 16 : 8;
    constexpr auto single_turns = static_cast<std::int64_t>(in_flight);
    std::int64_t i = done + lane;
    for (; i + (single_turns - 1) * lanes < count; i += single_turns * lanes) {
        From read[in_flight];
        for (std::int64_t turn = 0; turn < single_turns; ++turn) {
            read[turn] = from[i + turn * lanes];
        }
        for (std::int64_t turn = 0; turn < single_turns; ++turn) {
            to[i + turn * lanes] = narrowed<To>(scale * widened<W>(read[turn]));
        }
    }
    for (; i < count; i += lanes) {
        to[i] = narrowed<To>(scale * widened<W>(from[i]));
    }
}

// to[i] += from[i], this thread's share of i < count, in the wider of the two and rounded at the
// end.
template <typename To, typename From>
BUCKETWISE_BOTH_SIDES void add_share(To* to, const From* from, std::int64_t count,
                                     std::int64_t thread, std::int64_t threads) {
    using W = Computed<std::conditional_t<std::is_same_v<To, double>, To, From>>;
    for (std::int64_t i = thread; i < count; i += threads) {
        to[i] = narrowed<To>(widened<W>(to[i]) + widened<W>(from[i]));
    }
}

// Element i of a matrix of that many columns. 64-bit division takes several times as long as
// 32-bit, and next to it reading would hardly count.
struct MatrixPlace {
    std::int64_t row = 0;
    std::int64_t column = 0;
};
BUCKETWISE_BOTH_SIDES MatrixPlace place_of(std::int64_t i, std::int64_t columns) {
    if ((static_cast<std::uint64_t>(i | columns) >> 32U) == 0) {
        const auto row = static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(columns);
        return {row, i - row * columns};
    }
    return {i / columns, i % columns};
}

template <PackDirection direction, typename To, typename From>
BUCKETWISE_BOTH_SIDES void pack_share(const Chunk& chunk, double factor, std::int64_t lane,
                                      std::int64_t lanes) {
    std::byte* to = direction == PackDirection::into_place ? chunk.place : chunk.tensor;
    const std::byte* from = direction == PackDirection::into_place ? chunk.tensor : chunk.place;
    copy_share(reinterpret_cast<To*>(to) + chunk.begin,
               reinterpret_cast<const From*>(from) + chunk.begin, chunk.count, factor, lane, lanes);
}

// --- what backward and the optimizer compute ---

template <typename T>
BUCKETWISE_BOTH_SIDES void outer_product_share(T* to, std::int64_t count,
                                               const OuterProduct& product, bool accumulate,
                                               std::int64_t thread, std::int64_t threads) {
    using W = Computed<T>;
    for (std::int64_t i = thread; i < count; i += threads) {
        const MatrixPlace place = place_of(i, product.columns);
        const float value =
            product.factor * product.rows[place.row] * product.pattern[place.column];
        to[i] = narrowed<T>(accumulate ? widened<W>(to[i]) + static_cast<W>(value)
                                       : static_cast<W>(value));
    }
}

template <typename T>
BUCKETWISE_BOTH_SIDES void element_wise_share(T* y, const T* x, std::int64_t count,
                                              std::int64_t thread, std::int64_t threads) {
    using W = Computed<T>;
    constexpr auto step = step_of<T, T>();
    const std::int64_t words = count / step;  // both are aligned: they are whole allocations
    const auto* in = reinterpret_cast<const Several<T, step>*>(x);
    auto* inout = reinterpret_cast<Several<T, step>*>(y);
    for (std::int64_t word = thread; word < words; word += threads) {
        const Several<T, step> a = inout[word];
        const Several<T, step> b = in[word];
        Several<T, step> sum;
        for (int i = 0; i < step; ++i) {
            sum.values[i] =
                narrowed<T>(W{0.5} * widened<W>(a.values[i]) + widened<W>(b.values[i]) + W{1});
        }
        inout[word] = sum;
    }
    for (std::int64_t i = words * step + thread; i < count; i += threads) {
        y[i] = narrowed<T>(W{0.5} * widened<W>(y[i]) + widened<W>(x[i]) + W{1});
    }
}

// Four chains, so that arithmetic and not its latency is what takes time.
BUCKETWISE_BOTH_SIDES void filler_share(float* sink, std::int64_t work, std::int64_t thread) {
    const auto seed = static_cast<float>(thread % 1024);
    float a = seed;
    float b = seed + 1.0F;
    float c = seed + 2.0F;
    float d = seed + 3.0F;
    for (std::int64_t i = 0; i < work; ++i) {
        a = a * 0.999F + 0.001F;
        b = b * 0.999F + 0.001F;
        c = c * 0.999F + 0.001F;
        d = d * 0.999F + 0.001F;
    }
    sink[thread] = a + b + c + d;  // or the compiler would leave it all out
}

// The arithmetic is that of the optimizer; the rate is zero in effect, so that a long measurement
// ends with the parameters it began with.
template <typename T>
BUCKETWISE_BOTH_SIDES void optimizer_share(const Chunk& chunk, Optimizer optimizer,
                                           const OptimizerState& state, std::int64_t lane,
                                           std::int64_t lanes) {
    constexpr float rate = 1e-30F;
    constexpr int turns = 4;
    const T* gradients = reinterpret_cast<const T*>(chunk.tensor) + chunk.begin;
    float* parameters = reinterpret_cast<float*>(chunk.place) + chunk.begin;
    const std::int64_t offset = parameters - state.parameters;
    const bool has_first = optimizer != Optimizer::sgd;
    const bool has_second = optimizer == Optimizer::adam;
    float* first = has_first ? state.first_moments + offset : nullptr;
    float* second = has_second ? state.second_moments + offset : nullptr;
    BUCKETWISE_ASSUME_GLOBAL(gradients);
    BUCKETWISE_ASSUME_GLOBAL(parameters);
    // All reads of some turns before their writes, as the compiler cannot know that none of these
    // overlap.
    for (std::int64_t begin = lane; begin < chunk.count; begin += turns * lanes) {
        float g[turns] = {};
        float p[turns] = {};
        float m[turns] = {};
        float v[turns] = {};
        for (int turn = 0; turn < turns; ++turn) {
            const std::int64_t i = begin + turn * lanes;
            if (i < chunk.count) {
                g[turn] = widened<float>(gradients[i]);
                p[turn] = parameters[i];
                m[turn] = has_first ? first[i] : 0.0F;
                v[turn] = has_second ? second[i] : 0.0F;
            }
        }
        for (int turn = 0; turn < turns; ++turn) {
            const std::int64_t i = begin + turn * lanes;
            if (i >= chunk.count) {
                break;
            }
            float update = g[turn];
            if (has_second) {
                m[turn] = 0.9F * m[turn] + 0.1F * g[turn];
                v[turn] = 0.999F * v[turn] + 0.001F * g[turn] * g[turn];
                update = m[turn] / (sqrtf(v[turn]) + 1e-8F);
                first[i] = m[turn];
                second[i] = v[turn];
            } else if (has_first) {
                m[turn] = 0.9F * m[turn] + g[turn];
                update = m[turn];
                first[i] = m[turn];
            }
            parameters[i] = p[turn] - rate * update;
        }
    }
}

// --- checking ---

struct ShareFound {
    double largest_difference = 0;
    std::int64_t first_wrong = -1;
};

// A NaN counts as wrong, and as infinitely far off.
template <typename T>
BUCKETWISE_BOTH_SIDES ShareFound check_share(const Chunk& chunk, const ExpectedProduct& expected,
                                             std::int64_t lane, std::int64_t lanes) {
    ShareFound found;
    const T* data = reinterpret_cast<const T*>(chunk.tensor);
    for (std::int64_t i = chunk.begin + lane; i < chunk.begin + chunk.count; i += lanes) {
        const MatrixPlace place = place_of(i, expected.columns);
        const double exact = expected.factor * static_cast<double>(expected.rows[place.row]) *
                             static_cast<double>(expected.pattern[place.column]);
        const double difference = fabs(widened<double>(data[i]) - exact);
        if (!(difference <= found.largest_difference)) {
            found.largest_difference = difference <= HUGE_VAL ? difference : HUGE_VAL;
        }
        if (!(difference <= expected.tolerance * exact) && found.first_wrong < 0) {
            found.first_wrong = i;
        }
    }
    return found;
}

// --- BatchNorm ---
//
// A thread goes down a column of the [rows, channels] matrix, its neighbours down the columns
// beside it, so that a warp reads whole cache lines. One block sums the rows of 32 channels: right
// for up to some thousand rows, the batches of a layer on vectors; the maps of a convolution, with
// a million rows, would need more blocks.

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

}  // namespace bucketwise
