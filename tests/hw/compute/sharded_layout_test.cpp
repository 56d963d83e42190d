#include <cstdint>
#include <vector>

#include "hw/compute/elements.h"
#include "hw/compute/known_message.h"
#include "hw/compute/sharded_layout.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Both of the root.
std::vector<Gradient> weight_and_scale() {
    return {{.name = "weight", .numel = 35, .dtype = DType::float32, .rows = 5},
            {.name = "scale", .numel = 3, .dtype = DType::float32, .rows = 1}};
}

TEST_CASE("a parameter is cut between rows, and the last ranks hold less of it or nothing") {
    // 5 rows of 7 on 4 ranks: 2 each, so the third has one and the fourth none. One row: rank 0's.
    const ShardedLayout layout = layout_of({0, 1}, weight_and_scale(), 4, Cut::rows);
    CHECK(layout.part == 14 + 3);
    const ShardedParameter& weight = layout.parameters.at(0);
    const ShardedParameter& scale = layout.parameters.at(1);
    const std::vector<std::int64_t> of_weight{14, 14, 7, 0};
    const std::vector<std::int64_t> of_scale{3, 0, 0, 0};
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        CHECK(weight.numel_of(rank) == of_weight[index]);
        CHECK(scale.numel_of(rank) == of_scale[index]);
        CHECK(weight.first_of(rank) == 14 * rank);
        // Rank by rank, and within a rank parameter by parameter.
        CHECK(layout.place(weight, rank) == 17 * rank);
        CHECK(layout.place(scale, rank) == 17 * rank + 14);
    }
}

TEST_CASE("a parameter that is cut anywhere is padded by less than a part") {
    // 35 on 4 ranks: 9 each, so the fourth has 8; 3: one each, and none.
    const ShardedLayout layout = layout_of({1, 0}, weight_and_scale(), 4, Cut::anywhere);
    CHECK(layout.part == 1 + 9);
    const ShardedParameter& scale = layout.parameters.at(0);
    const ShardedParameter& weight = layout.parameters.at(1);
    CHECK(weight.numel_of(2) == 9);
    CHECK(weight.numel_of(3) == 8);
    CHECK(scale.numel_of(2) == 1);
    CHECK(scale.numel_of(3) == 0);
    CHECK(layout.place(weight, 3) == 31);
}

TEST_CASE("fewer ranks have larger parts of what all have cut") {
    // 14 elements of the weight and 3 of the scale for each of 4 ranks are 28 and 6 for each of 2.
    const ShardedLayout layout =
        among_fewer(layout_of({0, 1}, weight_and_scale(), 4, Cut::rows), 4, 2);
    CHECK(layout.part == 28 + 6);
    const ShardedParameter& weight = layout.parameters.at(0);
    CHECK(weight.numel_of(0) == 28);
    CHECK(weight.numel_of(1) == 7);
    CHECK(layout.place(layout.parameters.at(1), 1) == 34 + 28);
}

TEST_CASE("values of parameters differ from one to the next, from step to step and by place") {
    const std::int64_t numel = 10'000;
    std::vector<float> values(static_cast<std::size_t>(numel));
    const KnownParameter known{.parameter = 3, .step = 5, .dtype = DType::float32};
    write_known_parameter(values.data(), known, 0, 4097);
    write_known_parameter(values.data() + 4097, known, 4097, numel - 4097);
    const auto wrong = [&](const KnownParameter& other) {
        return check_known_parameter(values.data(), DType::float32, numel, other).wrong_element;
    };
    CHECK(wrong(known) == -1);
    CHECK(wrong({.parameter = 3, .step = 6, .dtype = DType::float32}) >= 0);
    CHECK(wrong({.parameter = 4, .step = 5, .dtype = DType::float32}) >= 0);
    std::swap(values[6000], values[6001]);
    CHECK(wrong(known) == 6000);
}

TEST_CASE("what was cast is compared as it is cast") {
    const KnownParameter known{.parameter = 1, .step = 0, .dtype = DType::float32};
    std::vector<float> shard(100);
    std::vector<std::uint16_t> gathered(100);
    write_known_parameter(shard.data(), known, 0, 100);
    cast_scaled(gathered.data(), DType::bfloat16, shard.data(), DType::float32, 100, 1.0);
    CHECK(check_known_parameter(gathered.data(), DType::bfloat16, 100, known).wrong_element == -1);
    gathered[99] ^= 1U;
    CHECK(check_known_parameter(gathered.data(), DType::bfloat16, 100, known).wrong_element == 99);
}

TEST_CASE("sums of two dtypes are rounded once, to the first") {
    std::vector<std::uint16_t> sum(1);
    const float one = 1.0F;
    cast_scaled(sum.data(), DType::bfloat16, &one, DType::float32, 1, 1.0);
    // bfloat16 has 8 bits: 1 + 3/256 lies between 1 + 1/128 and 1 + 2/128, and goes to the even
    // one.
    const float addend = 3.0F / 256;
    add_cast(sum.data(), DType::bfloat16, &addend, DType::float32, 1);
    CHECK(element_at(sum.data(), DType::bfloat16, 0) == 1.0 + 2.0 / 128);
    const double half = 0.5;
    float total = 0.25F;
    add_cast(&total, DType::float32, &half, DType::float64, 1);
    CHECK(total == 0.75F);
}

TEST_CASE("a part of a gradient is compared from where it begins") {
    std::vector<float> whole(35);  // 5 rows of 7
    for (std::int64_t i = 0; i < 35; ++i) {
        whole[static_cast<std::size_t>(i)] =
            2.0F * static_cast<float>(row_value(i / 7) * column_value(i % 7));
    }
    const auto wrong = [&](const float* part, std::int64_t first) {
        return check_gradient(part, DType::float32, 10, 7, 2.0, 1e-7, first).wrong_element;
    };
    CHECK(wrong(whole.data() + 17, 17) == -1);
    whole[20] += 1;
    CHECK(wrong(whole.data() + 17, 17) == 20);
}

}  // namespace
}  // namespace bucketwise
