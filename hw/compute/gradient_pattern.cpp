#include "hw/compute/gradient_pattern.h"

#include <algorithm>
#include <array>

#include "hw/compute/elements.h"

namespace bucketwise {
namespace {

// The finaliser of MurmurHash3: neighbours get unrelated values.
std::uint64_t scattered(std::uint64_t x) {
    x ^= x >> 33U;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33U;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33U;
    return x;
}

std::int32_t one_to(std::int32_t largest, std::int64_t index, std::uint64_t salt) {
    const std::uint64_t hash = scattered(static_cast<std::uint64_t>(index) * 4 + salt);
    return 1 + static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(largest));
}

std::vector<float> first_values(std::int64_t count, std::int32_t (*value)(std::int64_t)) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(value(i)));
    }
    return values;
}

}  // namespace

std::int32_t row_value(std::int64_t row) {
    return one_to(4, row, 1);
}

std::int32_t column_value(std::int64_t column) {
    return one_to(8, column, 2);
}

std::int32_t gradient_factor(std::int64_t gradient) {
    return one_to(4, gradient, 3);
}

std::int32_t rank_value(int rank, std::int64_t step, std::int64_t micro_step) {
    const bool varies = rank == 0 && micro_step == 0;
    return 1 + static_cast<std::int32_t>((varies ? step : rank + micro_step) % 4);
}

double mean_rank_value(int ranks, std::int64_t step, std::int64_t accumulation) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        for (std::int64_t micro_step = 0; micro_step < accumulation; ++micro_step) {
            sum += rank_value(rank, step, micro_step);
        }
    }
    return static_cast<double>(sum) / ranks;
}

float scale_within_float16(int ranks, std::int64_t accumulation) {
    constexpr double largest_value = 4 * 4 * 4 * 8;
    constexpr double half_of_float16 = 32768;
    const double largest_sum = largest_value * ranks * static_cast<double>(accumulation);
    float scale = 1;
    while (largest_sum * double{scale} > half_of_float16) {
        scale /= 2;
    }
    return scale;
}

std::vector<float> row_values(std::int64_t rows) {
    return first_values(rows, row_value);
}

std::vector<float> column_values(std::int64_t columns) {
    return first_values(columns, column_value);
}

ElementCheck check_gradient(const void* data, DType dtype, std::int64_t numel, std::int64_t columns,
                            double factor_and_mean, double tolerance, std::int64_t first) {
    constexpr std::int64_t block = 4096;
    std::array<double, block> values{};
    const std::vector<float> pattern = column_values(columns);
    ElementCheck check;
    for (std::int64_t begin = 0; begin < numel;) {
        // A block lies within one row, so that the inner loop is a plain one.
        const std::int64_t column = (first + begin) % columns;
        const std::int64_t count = std::min({block, numel - begin, columns - column});
        const auto* bytes = static_cast<const char*>(data) + begin * element_size(dtype).count;
        cast_scaled(values.data(), DType::float64, bytes, dtype, count, 1.0);
        const double row = factor_and_mean * row_value((first + begin) / columns);
        for (std::int64_t i = 0; i < count; ++i) {
            const double exact = row * double{pattern[static_cast<std::size_t>(column + i)]};
            check.compare(first + begin + i, exact, values[static_cast<std::size_t>(i)], tolerance);
        }
        begin += count;
    }
    return check;
}

double rounding_tolerance(int ranks, std::int64_t accumulation, DType on_the_wire) {
    const double unit_roundoff = std::ldexp(1.0, -significant_bits(on_the_wire));
    const double roundings = static_cast<double>(ranks) + static_cast<double>(accumulation) + 3;
    return 1.01 * roundings * unit_roundoff;
}

}  // namespace bucketwise
