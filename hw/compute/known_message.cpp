#include "hw/compute/known_message.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "sim/base/hash.h"

namespace bucketwise {
namespace {

constexpr std::int64_t block_elements = 4096;
using Block = std::array<double, block_elements>;

// Each is exact in the shard's dtype.
void fill(Block& block, const KnownParameter& known, std::int64_t first, std::int64_t count) {
    constexpr std::int64_t steps = 1024;  // that differ
    const auto term = static_cast<int>(known.parameter * steps + known.step % steps);
    for (std::int64_t i = 0; i < count; ++i) {
        block[static_cast<std::size_t>(i)] = known_term(term, first + i, known.dtype);
    }
}

long double exact_sum(std::int64_t element, DType dtype, int ranks) {
    long double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        sum += known_term(rank, element, dtype);
    }
    return sum;
}

}  // namespace

double known_term(int rank, std::int64_t element, DType dtype) {
    const std::uint64_t hash = mixed_bits(mixed_bits(static_cast<std::uint64_t>(rank)) ^
                                          static_cast<std::uint64_t>(element));
    const int bits = significant_bits(dtype) - 1;  // so that a term is exact in its dtype
    return 1.0 +
           std::ldexp(static_cast<double>(hash >> (64U - static_cast<unsigned>(bits))), -bits);
}

void write_known_message(void* data, std::int64_t elements, DType dtype, int rank) {
    Block block{};
    for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
        const std::int64_t count = std::min(block_elements, elements - begin);
        for (std::int64_t i = 0; i < count; ++i) {
            block[static_cast<std::size_t>(i)] = known_term(rank, begin + i, dtype);
        }
        cast_scaled(static_cast<std::byte*>(data) + begin * element_size(dtype).count, dtype,
                    block.data(), DType::float64, count, 1.0);
    }
}

MessageCheck check_known_sum(const void* data, std::int64_t elements, DType dtype, int ranks,
                             std::int64_t first) {
    const double tolerance = rounding_tolerance(ranks, 0, dtype);
    ElementCheck found;
    Block block{};
    for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
        const std::int64_t count = std::min(block_elements, elements - begin);
        cast_scaled(block.data(), DType::float64,
                    static_cast<const std::byte*>(data) + begin * element_size(dtype).count, dtype,
                    count, 1.0);
        for (std::int64_t i = 0; i < count; ++i) {
            found.compare(first + begin + i, exact_sum(first + begin + i, dtype, ranks),
                          block[static_cast<std::size_t>(i)], tolerance);
        }
    }
    MessageCheck check{.largest_difference = found.largest_difference / ranks};
    if (found.wrong_element >= 0) {
        check.wrong = fmt::format("sum of {} over {} ranks, element {} of {}: expected {}, got {}",
                                  name_of(dtype), ranks, found.wrong_element, first + elements,
                                  found.expected, found.got);
    }
    return check;
}

MessageCheck check_known_gather(const void* data, std::int64_t elements, DType dtype, int ranks) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    const std::int64_t element = element_size(dtype).count;
    std::vector<std::byte> expected(static_cast<std::size_t>(elements * element));
    for (int rank = 0; rank < ranks; ++rank) {
        write_known_message(expected.data(), elements, dtype, rank);
        const auto* const part = bytes + rank * elements * element;
        const auto wrong = std::mismatch(expected.begin(), expected.end(), part).first;
        if (wrong != expected.end()) {
            return {.wrong = fmt::format("part of rank {} of {} gathered over {} ranks, element {} "
                                         "of {}: not what that rank sent",
                                         rank, name_of(dtype), ranks,
                                         (wrong - expected.begin()) / element, elements)};
        }
    }
    return {};
}

void write_known_parameter(void* data, const KnownParameter& known, std::int64_t first,
                           std::int64_t count) {
    Block block{};
    for (std::int64_t done = 0; done < count; done += block_elements) {
        const std::int64_t now = std::min(block_elements, count - done);
        fill(block, known, first + done, now);
        cast_scaled(static_cast<std::byte*>(data) + done * element_size(known.dtype).count,
                    known.dtype, block.data(), DType::float64, now, 1.0);
    }
}

ElementCheck check_known_parameter(const void* data, DType dtype, std::int64_t numel,
                                   const KnownParameter& known) {
    Block expected{};
    Block cast{};
    Block got{};
    ElementCheck check;
    for (std::int64_t done = 0; done < numel; done += block_elements) {
        const std::int64_t now = std::min(block_elements, numel - done);
        fill(expected, known, done, now);
        cast_scaled(cast.data(), dtype, expected.data(), DType::float64, now, 1.0);
        cast_scaled(expected.data(), DType::float64, cast.data(), dtype, now, 1.0);
        cast_scaled(got.data(), DType::float64,
                    static_cast<const std::byte*>(data) + done * element_size(dtype).count, dtype,
                    now, 1.0);
        for (std::int64_t i = 0; i < now; ++i) {
            const auto at = static_cast<std::size_t>(i);
            check.compare(done + i, expected[at], got[at], 0.0);
        }
    }
    return check;
}

}  // namespace bucketwise
