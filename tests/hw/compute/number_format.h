// Number formats written down once more, slowly and from their definition (IEEE 754-2019, section
// 3.4), to check fast code against.
#pragma once

#include <cmath>
#include <cstdint>

namespace bucketwise::testing {

struct NumberFormat {
    int exponent_bits = 0;
    int mantissa_bits = 0;

    [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    [[nodiscard]] std::uint64_t infinity() const {
        return ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
    }
    [[nodiscard]] std::uint64_t sign_bit() const {
        return std::uint64_t{1} << (exponent_bits + mantissa_bits);
    }
    // The error of one rounding to nearest, relative to the result: half of the last place.
    [[nodiscard]] long double unit_roundoff() const { return std::ldexp(1.0L, -mantissa_bits - 1); }
};

constexpr NumberFormat format_of_float16{5, 10};
constexpr NumberFormat format_of_bfloat16{8, 7};
constexpr NumberFormat format_of_float32{8, 23};
constexpr NumberFormat format_of_float64{11, 52};

inline long double decoded(NumberFormat format, std::uint64_t bits) {
    const std::uint64_t magnitude = bits & (format.sign_bit() - 1);
    const long double sign = (bits & format.sign_bit()) != 0 ? -1.0L : 1.0L;
    if (magnitude >= format.infinity()) {
        return magnitude == format.infinity() ? sign * INFINITY : std::nanl("");
    }
    const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
    const std::uint64_t one = std::uint64_t{1} << format.mantissa_bits;
    const std::uint64_t mantissa = magnitude & (one - 1);
    const std::uint64_t significand = exponent == 0 ? mantissa : mantissa + one;
    return sign * std::ldexp(static_cast<long double>(significand),
                             std::max(exponent, 1) - format.bias() - format.mantissa_bits);
}

// Rounded to nearest, ties to even. The format's value of no number: one of its NaNs.
inline std::uint64_t encoded(NumberFormat format, long double value) {
    const std::uint64_t sign = std::signbit(value) ? format.sign_bit() : 0;
    const long double magnitude = std::fabs(value);
    if (std::isnan(value)) {
        return format.infinity() + 1;
    }
    if (std::isinf(value) || magnitude == 0) {
        return sign | (magnitude == 0 ? 0 : format.infinity());
    }
    const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias());
    // nearbyint rounds as the environment says, by default to nearest, ties to even.
    const auto significand = static_cast<std::uint64_t>(
        std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
    // The leading one of a normal number adds 1 to the exponent field, as does a carry from
    // rounding; a subnormal number has none.
    const auto field = static_cast<std::uint64_t>(exponent + format.bias() - 1);
    return sign | std::min((field << format.mantissa_bits) + significand, format.infinity());
}

}  // namespace bucketwise::testing
