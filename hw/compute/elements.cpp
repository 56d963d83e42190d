#include "hw/compute/elements.h"

#include <bit>
#include <cstring>
#include <limits>
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

// The conversions are written without branches so that compilers turn the loops over them into
// vector code on any CPU: x86-64 has conversions of its own only from F16C and AVX512-BF16 on.

constexpr std::uint32_t float_infinity = 0x7f80'0000;

// first if `condition`, else second. Written as ?:, GCC 12 makes a branch of it again where one of
// the two takes an addition.
constexpr std::uint32_t either(bool condition, std::uint32_t first, std::uint32_t second) {
    const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
    return (first & mask) | (second & ~mask);
}

struct BFloat16Bits {
    static float widened(std::uint16_t bits) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }

    // Adding just under half of the last place kept, and the rest if that place is odd, carries
    // exactly when the value is to be rounded up; a carry into the exponent is right too.
    static std::uint16_t rounded(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const std::uint32_t quiet_nan = (bits >> 16) | 0x0040;
        const bool is_nan = (bits & 0x7fff'ffff) > float_infinity;
        return static_cast<std::uint16_t>(either(is_nan, quiet_nan, nearest));
    }
};

// binary16 has 5 bits of exponent (bias 15) and 10 of mantissa, float32 8 (bias 127) and 23.
struct HalfBits {
    // A multiplication by 2^(127-15) mends the exponent, of subnormal values too.
    static float widened(std::uint16_t bits) {
        const std::uint32_t magnitude = (bits & 0x7fffU) << 13;
        const float finite = std::bit_cast<float>(magnitude) * 0x1p112F;
        const std::uint32_t beyond = either(magnitude >= (0x7c00U << 13), float_infinity, 0);
        const std::uint32_t sign = (bits & 0x8000U) << 16;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(finite) | beyond | sign);
    }

    static std::uint16_t rounded(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t sign = (bits >> 16) & 0x8000;
        const std::uint32_t magnitude = bits & 0x7fff'ffff;
        // The last place of 1/2 in float32 is 2^-24, that of a subnormal binary16: the addition
        // rounds.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f00'0000;
        const std::uint32_t normal =
            (magnitude - (112U << 23) + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
        const std::uint32_t beyond = either(magnitude > float_infinity, 0x7e00, 0x7c00);
        const std::uint32_t finite = either(magnitude < (113U << 23), subnormal, normal);
        return static_cast<std::uint16_t>(sign | either(magnitude >= (143U << 23), beyond, finite));
    }
};

template <typename T>
void sum_of(void* sum, const void* addend, std::int64_t elements) {
    auto* const to = static_cast<T*>(sum);
    const auto* const from = static_cast<const T*>(addend);
    for (std::int64_t i = 0; i < elements; ++i) {
        to[i] += from[i];
    }
}

template <typename Format>
void sum_of_16_bits(void* sum, const void* addend, std::int64_t elements) {
    auto* const to = static_cast<std::uint16_t*>(sum);
    const auto* const from = static_cast<const std::uint16_t*>(addend);
    for (std::int64_t i = 0; i < elements; ++i) {
        to[i] = Format::rounded(Format::widened(to[i]) + Format::widened(from[i]));
    }
}

template <typename T>
constexpr ElementSum sum_in = sum_of<T>;
template <>
constexpr ElementSum sum_in<Half> = sum_of_16_bits<HalfBits>;
template <>
constexpr ElementSum sum_in<BFloat16> = sum_of_16_bits<BFloat16Bits>;

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

void pack_all(const std::vector<TensorPlace>& tensors, PackDirection direction, DType to_dtype,
              DType from_dtype, double factor) {
    for (const TensorPlace& one : tensors) {
        const bool in = direction == PackDirection::into_place;
        std::byte* to = in ? one.place : one.tensor;
        const std::byte* from = in ? one.tensor : one.place;
        if (to_dtype == from_dtype) {
            copy_scaled(to, from, one.numel, to_dtype, factor);
        } else {
            cast_scaled(to, to_dtype, from, from_dtype, one.numel, factor);
        }
    }
}

void add_cast(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count) {
    with_type(to_dtype, [&](auto to_zero) {
        using To = decltype(to_zero);
        with_type(from_dtype, [&](auto from_zero) {
            using From = decltype(from_zero);
            using W = std::common_type_t<Wide<To>, Wide<From>>;
            auto* sum = static_cast<To*>(to);
            const auto* addend = static_cast<const From*>(from);
            for (std::int64_t i = 0; i < count; ++i) {
                sum[i] = static_cast<To>(static_cast<W>(sum[i]) + static_cast<W>(addend[i]));
            }
        });
    });
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

int significant_bits(DType dtype) {
    return with_type(dtype,
                     [](auto zero) { return int{std::numeric_limits<decltype(zero)>::digits}; });
}

ElementSum element_sum(DType dtype) {
    return with_type(dtype, [](auto zero) { return sum_in<decltype(zero)>; });
}

}  // namespace bucketwise
