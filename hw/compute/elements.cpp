#include "hw/compute/elements.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <Eigen/Core>

namespace bucketwise {
namespace {

using Half = Eigen::half;
using BFloat16 = Eigen::bfloat16;

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename Function>
decltype(auto) with_type(DType dtype, Function&& function) {
    switch (dtype) {
        case DType::float16:
            return function(Half{});
        case DType::bfloat16:
            return function(BFloat16{});
        case DType::float64:
            return function(double{});
        case DType::float32:
            break;
    }
    return function(float{});
}

template <typename To, typename From>
void scale_into(To* to, const From* from, std::int64_t count, double factor) {
    using W = std::common_type_t<Wide<To>, Wide<From>>;
    const auto scale = static_cast<W>(factor);
    for (std::int64_t i = 0; i < count; ++i) {
        to[i] = static_cast<To>(scale * static_cast<W>(from[i]));
    }
}

}  // namespace

void copy_scaled(void* to, const void* from, std::int64_t count, DType dtype, double factor) {
    if (factor == 1.0) {
        if (to != from && count > 0) {
            std::memcpy(to, from, static_cast<std::size_t>(count * element_size(dtype).count));
        }
        return;
    }
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        scale_into(static_cast<T*>(to), static_cast<const T*>(from), count, factor);
    });
}

void cast_scaled(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count,
                 double factor) {
    with_type(to_dtype, [&](auto to_zero) {
        using To = decltype(to_zero);
        with_type(from_dtype, [&](auto from_zero) {
            using From = decltype(from_zero);
            scale_into(static_cast<To*>(to), static_cast<const From*>(from), count, factor);
        });
    });
}

void store(void* to, DType dtype, const float* from, std::int64_t count, bool accumulate) {
    store_scaled(to, dtype, from, count, 1.0F, accumulate);
}

void store_scaled(void* to, DType dtype, const float* pattern, std::int64_t count, float factor,
                  bool accumulate) {
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        using W = Wide<T>;
        auto* out = static_cast<T*>(to);
        if (accumulate) {
            for (std::int64_t i = 0; i < count; ++i) {
                out[i] =
                    static_cast<T>(static_cast<W>(out[i]) + static_cast<W>(factor * pattern[i]));
            }
        } else {
            for (std::int64_t i = 0; i < count; ++i) {
                out[i] = static_cast<T>(factor * pattern[i]);
            }
        }
    });
}

double element_at(const void* data, DType dtype, std::int64_t index) {
    return with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        return static_cast<double>(static_cast<const T*>(data)[index]);
    });
}

}  // namespace bucketwise
