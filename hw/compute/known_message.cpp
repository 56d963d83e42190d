#include "hw/compute/known_message.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"

namespace bucketwise {
namespace {

// Significant bits, so that a term is exact in its dtype.
int significant_bits(DType dtype) {
    switch (dtype) {
        case DType::bfloat16:
            return 8;
        case DType::float16:
            return 11;
        case DType::float32:
            return 24;
        case DType::float64:
            return 53;
    }
    return 0;
}

// SplitMix64's output function on a counter.
std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

constexpr std::int64_t block_elements = 4096;

long double exact_sum(std::int64_t element, DType dtype, int ranks) {
    long double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        sum += known_term(rank, element, dtype);
    }
    return sum;
}

}  // namespace

double known_term(int rank, std::int64_t element, DType dtype) {
    const std::uint64_t hash =
        mixed(mixed(static_cast<std::uint64_t>(rank)) ^ static_cast<std::uint64_t>(element));
    const int bits = significant_bits(dtype) - 1;
    return 1.0 +
           std::ldexp(static_cast<double>(hash >> (64U - static_cast<unsigned>(bits))), -bits);
}

void write_known_message(void* data, std::int64_t elements, DType dtype, int rank) {
    std::array<double, block_elements> block{};
    for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
        const std::int64_t count = std::min(block_elements, elements - begin);
        for (std::int64_t i = 0; i < count; ++i) {
            block[static_cast<std::size_t>(i)] = known_term(rank, begin + i, dtype);
        }
        cast_scaled(static_cast<std::byte*>(data) + begin * element_size(dtype).count, dtype,
                    block.data(), DType::float64, count, 1.0);
    }
}

MessageCheck check_known_sum(const void* data, std::int64_t elements, DType dtype, int ranks) {
    const double tolerance = rounding_tolerance(ranks, 0, dtype);
    MessageCheck check;
    std::array<double, block_elements> block{};
    for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
        const std::int64_t count = std::min(block_elements, elements - begin);
        cast_scaled(block.data(), DType::float64,
                    static_cast<const std::byte*>(data) + begin * element_size(dtype).count, dtype,
                    count, 1.0);
        for (std::int64_t i = 0; i < count; ++i) {
            const long double exact = exact_sum(begin + i, dtype, ranks);
            const double got = block[static_cast<std::size_t>(i)];
            const auto difference = static_cast<double>(std::abs(got - exact));
            // Written so that a NaN counts as wrong.
            if (!(difference <= check.largest_difference)) {
                check.largest_difference = difference;
            }
            if (!(difference <= tolerance * static_cast<double>(exact)) && check.wrong.empty()) {
                check.wrong = fmt::format(
                    "sum of {} over {} ranks, element {} of {}: expected {}, got {}",
                    name_of(dtype), ranks, begin + i, elements, static_cast<double>(exact), got);
            }
        }
    }
    check.largest_difference /= ranks;
    return check;
}

}  // namespace bucketwise
