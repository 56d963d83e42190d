// Gradients and messages whose exact sums every rank knows.
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "hw/compute/known_message.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("the values of gradients stay within what float16 holds exactly") {
    std::set<std::int32_t> rows;
    std::set<std::int32_t> columns;
    for (std::int64_t i = 0; i < 1000; ++i) {
        rows.insert(row_value(i));
        columns.insert(column_value(i));
        CHECK(gradient_factor(i) >= 1);
        CHECK(gradient_factor(i) <= 4);
    }
    CHECK(rows == std::set<std::int32_t>{1, 2, 3, 4});
    CHECK(columns == std::set<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("the mean over ranks differs between successive steps") {
    for (const int ranks : {1, 2, 3, 8}) {
        for (std::int64_t step = 0; step < 8; ++step) {
            CHECK(mean_rank_value(ranks, step, 2) != mean_rank_value(ranks, step + 1, 2));
        }
    }
    // Step 5: rank 0 counts 1 + 5 % 4 = 2, then 1 + 1; rank 1 counts 1 + 1, then 1 + 2.
    CHECK(mean_rank_value(2, 5, 2) == (2 + 2 + 2 + 3) / 2.0);
}

std::vector<float> exact_gradient(std::int64_t rows, std::int64_t columns, float factor) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
            values.push_back(factor * static_cast<float>(row_value(i) * column_value(j)));
        }
    }
    return values;
}

TEST_CASE("a gradient's check finds the first wrong element and the largest difference") {
    const std::int64_t rows = 3;
    const std::int64_t columns = 5000;  // more than a block
    std::vector<float> values = exact_gradient(rows, columns, 2.5F);
    const auto check = [&] {
        return check_gradient(values.data(), DType::float32, rows * columns, columns, 2.5, 1e-7);
    };
    CHECK(check().wrong_element == -1);
    CHECK(check().largest_difference == 0.0);
    values[12345] += 0.5F;
    values[14000] += 3.0F;
    CHECK(check().wrong_element == 12345);
    CHECK(check().largest_difference == 3.0);
    CHECK(check().got - check().expected == 0.5);
    values[7] = std::numeric_limits<float>::quiet_NaN();
    CHECK(check().wrong_element == 7);
}

TEST_CASE("neighbouring elements that change places are seen") {
    std::vector<float> values = exact_gradient(4, 64, 1.0F);
    int seen = 0;
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
        if (values[i] != values[i + 1]) {
            std::swap(values[i], values[i + 1]);
            seen +=
                check_gradient(values.data(), DType::float32, 256, 64, 1.0, 1e-7).wrong_element ==
                        static_cast<std::int64_t>(i)
                    ? 1
                    : -1000;
            std::swap(values[i], values[i + 1]);
        }
    }
    CHECK(seen > 200);  // an eighth of the neighbours are equal, give or take
}

TEST_CASE("a message's terms are exact in their dtype and its sum is checked in every element") {
    for (const DType dtype : every<DType>) {
        INFO(name_of(dtype));
        constexpr std::int64_t elements = 5000;
        std::vector<std::byte> mine(static_cast<std::size_t>(elements * 8));
        write_known_message(mine.data(), elements, dtype, 3);
        for (const std::int64_t i : {0, 1, 4095, 4096, 4999}) {
            const double term = known_term(3, i, dtype);
            CHECK(element_at(mine.data(), dtype, i) == term);
            CHECK(term >= 1.0);
            CHECK(term < 2.0);
        }
        // One rank's sum is its own message.
        std::vector<std::byte> first(static_cast<std::size_t>(elements * 8));
        write_known_message(first.data(), elements, dtype, 0);
        CHECK(check_known_sum(first.data(), elements, dtype, 1).wrong.empty());
        CHECK(check_known_sum(first.data(), elements, dtype, 1).largest_difference == 0.0);
        CHECK_FALSE(check_known_sum(mine.data(), elements, dtype, 1).wrong.empty());
        CHECK_FALSE(check_known_sum(first.data(), elements, dtype, 2).wrong.empty());
        // From an element on.
        const std::int64_t element = element_size(dtype).count;
        CHECK(check_known_sum(first.data() + 7 * element, elements - 7, dtype, 1, 7).wrong.empty());
        CHECK_FALSE(check_known_sum(first.data(), elements - 7, dtype, 1, 7).wrong.empty());
    }
}

TEST_CASE("a gathered message is checked to the bit, in every rank's part") {
    constexpr std::int64_t elements = 5;
    for (const DType dtype : every<DType>) {
        const std::int64_t part = elements * element_size(dtype).count;
        std::vector<std::byte> all(static_cast<std::size_t>(3 * part));
        for (int rank = 0; rank < 3; ++rank) {
            write_known_message(all.data() + rank * part, elements, dtype, rank);
        }
        CHECK(check_known_gather(all.data(), elements, dtype, 3).wrong.empty());
        all[static_cast<std::size_t>(3 * part - 1)] ^= std::byte{1};
        CHECK(check_known_gather(all.data(), elements, dtype, 3)
                  .wrong.find("part of rank 2 of " + std::string(name_of(dtype)) +
                              " gathered over 3 ranks, element 4 of 5") != std::string::npos);
        CHECK(check_known_gather(all.data(), elements, dtype, 2).wrong.empty());
    }
}

TEST_CASE("copies, casts and stores keep values that the dtype holds") {
    const std::vector<double> values{0.0, 1.0, -2.5, 96.0, 0.125};
    for (const DType dtype : every<DType>) {
        INFO(name_of(dtype));
        std::vector<std::byte> to(64);
        cast_scaled(to.data(), dtype, values.data(), DType::float64, 5, 2.0);
        for (std::size_t i = 0; i < values.size(); ++i) {
            CHECK(element_at(to.data(), dtype, static_cast<std::int64_t>(i)) == 2 * values[i]);
        }
        std::vector<std::byte> copy(64);
        copy_scaled(copy.data(), to.data(), 5, dtype, 0.5);
        const std::vector<float> more{1.0F, 1.0F, 0.5F, 4.0F, 0.25F};
        store_scaled(copy.data(), dtype, more.data(), 5, 2.0F, true);
        for (std::size_t i = 0; i < values.size(); ++i) {
            CHECK(element_at(copy.data(), dtype, static_cast<std::int64_t>(i)) ==
                  values[i] + 2.0 * double{more[i]});
        }
        store_scaled(copy.data(), dtype, more.data(), 5, 1.0F, false);
        CHECK(element_at(copy.data(), dtype, 3) == 4.0);
    }
}

}  // namespace
}  // namespace bucketwise
