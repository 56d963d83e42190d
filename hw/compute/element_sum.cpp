#include "hw/compute/element_sum.h"

#include <bit>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

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
struct Float16 {
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

}  // namespace

ElementSum element_sum(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return sum_of<float>;
        case DType::float16:
            return sum_of_16_bits<Float16>;
        case DType::bfloat16:
            return sum_of_16_bits<BFloat16Bits>;
        case DType::float64:
            return sum_of<double>;
    }
    invariant(false, "a dtype has a sum");
    return nullptr;
}

}  // namespace bucketwise
