#include "hw/rank/statistics_messages.h"

#include <cstring>

#include "tests/catch.h"

namespace bucketwise {
namespace {

// An all-gather of 3 float32 from each of 2 ranks, a bucket, an all-reduce of 3 float64.
Program program_of_test() {
    Program program;
    program.collectives = {
        {.kind = CollectiveKind::all_gather,
         .cargo = StatisticsOf{Phase::forward, 0, DType::float32},
         .bytes = Bytes{24}},
        {.kind = CollectiveKind::all_reduce, .cargo = GradientsOf{}, .bytes = Bytes{1000}},
        {.kind = CollectiveKind::all_reduce,
         .cargo = StatisticsOf{Phase::backward, 1, DType::float64},
         .bytes = Bytes{24}}};
    return program;
}

// Both ranks' values after the collectives.
std::vector<std::byte> exchanged(const StatisticsMessages& first,
                                 const StatisticsMessages& second) {
    std::vector<std::byte> block = first.initial();
    const StatisticsExchange& gather = first.of(0);
    std::memcpy(block.data() + gather.all_offset, first.initial().data() + gather.own_offset, 12);
    std::memcpy(block.data() + gather.all_offset + 12, second.initial().data() + gather.own_offset,
                12);
    const StatisticsExchange& reduce = first.of(2);
    for (std::int64_t i = 0; i < 3; ++i) {
        double a = 0;
        double b = 0;
        std::memcpy(&a, first.initial().data() + reduce.own_offset + 8 * i, 8);
        std::memcpy(&b, second.initial().data() + reduce.own_offset + 8 * i, 8);
        a += b;
        std::memcpy(block.data() + reduce.own_offset + 8 * i, &a, 8);
    }
    return block;
}

TEST_CASE("each exchange of statistics has a place of its own, as large as the simulator's") {
    const StatisticsMessages messages(program_of_test(), 1, 2);
    const StatisticsExchange& gather = messages.of(0);
    CHECK(gather.gathers);
    CHECK(gather.elements == 3);
    CHECK(gather.own_size() == Bytes{12});
    CHECK(gather.all_offset >= gather.own_offset + 12);
    const StatisticsExchange& reduce = messages.of(2);
    CHECK_FALSE(reduce.gathers);
    CHECK(reduce.dtype == DType::float64);
    CHECK(reduce.own_size() == Bytes{24});
    CHECK(reduce.own_offset >= gather.all_offset + 24);
    CHECK(std::ssize(messages.initial()) >= reduce.own_offset + 24);
}

TEST_CASE("a sum or a block that is wrong is seen, by collective and element") {
    const StatisticsMessages first(program_of_test(), 0, 2);
    const StatisticsMessages second(program_of_test(), 1, 2);
    const std::vector<std::byte> right = exchanged(first, second);
    CHECK(first.what_is_wrong(right).empty());
    CHECK(second.what_is_wrong(right).empty());
    // Nothing was sent: the gathered block is still zero.
    CHECK(first.what_is_wrong(first.initial()) ==
          "statistics of collective 0, element 0: expected 1, got 0");
    // Blocks of the ranks in each other's place: rank 1 brings 2, 3, 4.
    const std::vector<std::byte> swapped = exchanged(second, first);
    CHECK(first.what_is_wrong(swapped) ==
          "statistics of collective 0, element 0: expected 1, got 2");
    // The last sum lacks rank 1: 3 in place of 3 + 4.
    std::vector<std::byte> lacking = right;
    const double three = 3;
    std::memcpy(lacking.data() + first.of(2).own_offset + 16, &three, 8);
    CHECK(first.what_is_wrong(lacking) ==
          "statistics of collective 2, element 2: expected 7, got 3");
}

}  // namespace
}  // namespace bucketwise
