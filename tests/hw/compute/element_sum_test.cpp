#include "hw/compute/elements.h"

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/hw/compute/number_format.h"

namespace bucketwise {
namespace {

using testing::NumberFormat;

// Zeros, the largest and smallest subnormal and normal numbers, infinity, a NaN, with both signs;
// one, and a few more that a seed picks.
std::vector<std::uint16_t> addends_of(NumberFormat format) {
    const auto inf = static_cast<std::uint16_t>(format.infinity());
    const auto one = static_cast<std::uint16_t>(testing::encoded(format, 1.0L));
    const auto smallest_normal = static_cast<std::uint16_t>(1U << format.mantissa_bits);
    std::vector<std::uint16_t> addends{0, 1, smallest_normal, one, inf};
    for (const std::uint16_t near : {smallest_normal, inf}) {
        addends.push_back(static_cast<std::uint16_t>(near - 1));
        addends.push_back(static_cast<std::uint16_t>(near + 1));
    }
    for (std::size_t i = addends.size(); i > 0; --i) {
        addends.push_back(static_cast<std::uint16_t>(addends[i - 1] | 0x8000U));
    }
    std::mt19937 random(7);
    while (addends.size() < 30) {
        addends.push_back(static_cast<std::uint16_t>(random()));
    }
    return addends;
}

// How many of all 2^16 values come out wrong when `addend` is added.
int wrong_sums(DType dtype, NumberFormat format, std::uint16_t addend) {
    constexpr std::size_t count = 1U << 16;
    std::vector<std::uint16_t> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<std::uint16_t>(i);
    }
    const std::vector<std::uint16_t> addends(count, addend);
    element_sum(dtype)(values.data(), addends.data(), count);
    int wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
        // Exact: long double spans either format's exponents with 64 bits or, where the numbers
        // lie further apart than that, rounding cannot tell.
        const long double exact = testing::decoded(format, i) + testing::decoded(format, addend);
        const bool right = std::isnan(exact) ? std::isnan(testing::decoded(format, values[i]))
                                             : values[i] == testing::encoded(format, exact);
        wrong += right ? 0 : 1;
    }
    return wrong;
}

TEST_CASE("sums of 16-bit numbers are rounded to the nearest, ties to even, for every value") {
    for (const std::uint16_t addend : addends_of(testing::format_of_float16)) {
        CAPTURE(addend);
        CHECK(wrong_sums(DType::float16, testing::format_of_float16, addend) == 0);
    }
    for (const std::uint16_t addend : addends_of(testing::format_of_bfloat16)) {
        CAPTURE(addend);
        CHECK(wrong_sums(DType::bfloat16, testing::format_of_bfloat16, addend) == 0);
    }
}

TEST_CASE("sums of float32 and float64 are those of the processor, and reach no further") {
    std::array<float, 4> sum32{1.0F, 0.1F, -3.0F, 7.0F};
    const std::array<float, 4> addend32{0.5F, 0.2F, 3.0F, 1.0F};
    element_sum(DType::float32)(sum32.data(), addend32.data(), 3);
    CHECK(sum32 == std::array<float, 4>{1.5F, 0.1F + 0.2F, 0.0F, 7.0F});

    std::array<double, 3> sum64{1.0, 0.1, 5.0};
    const std::array<double, 3> addend64{0.5, 0.2, 1.0};
    element_sum(DType::float64)(sum64.data(), addend64.data(), 2);
    CHECK(sum64 == std::array<double, 3>{1.5, 0.1 + 0.2, 5.0});
}

TEST_CASE("a sum of no elements touches nothing") {
    for (const DType dtype : every<DType>) {
        element_sum(dtype)(nullptr, nullptr, 0);
    }
}

}  // namespace
}  // namespace bucketwise
