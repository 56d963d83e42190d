#include "hw/gloo/predicted_all_reduce.h"

#include <vector>

#include "hw/compute/known_message.h"
#include "hw/rank/communicator.h"
#include "tests/catch.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using testing::on_ranks;

constexpr auto ring = AllReduceImplementation::ring;
constexpr auto direct = AllReduceImplementation::direct;
constexpr auto library = AllReduceImplementation::library;

TEST_CASE("scratch follows from how each algorithm cuts the buffer") {
    // 10 floats on 4 ranks: chunks of 3, 3, 2 and 2. Two chunks of 12 bytes; three of them.
    CHECK(all_reduce_scratch(ring, 10, DType::float32, 4) == Bytes{24});
    CHECK(all_reduce_scratch(direct, 10, DType::float32, 4) == Bytes{36});
    // Gloo: 40 bytes over 8 segments are 5, rounded up to whole floats 8; two of them.
    CHECK(all_reduce_scratch(library, 10, DType::float32, 4) == Bytes{16});
    // 64 MiB on 2 ranks: half of it, for the only step; half of it; two segments of 1 MiB.
    constexpr std::int64_t mib = 1 << 20;
    CHECK(all_reduce_scratch(ring, 16 * mib, DType::float32, 2) == Bytes{32 * mib});
    CHECK(all_reduce_scratch(direct, 16 * mib, DType::float32, 2) == Bytes{32 * mib});
    CHECK(all_reduce_scratch(library, 16 * mib, DType::float32, 2) == Bytes{2 * mib});
    // On 32 ranks the ring needs 2/32 of it, the direct exchange 31/32.
    CHECK(all_reduce_scratch(ring, 16 * mib, DType::float32, 32) == Bytes{4 * mib});
    CHECK(all_reduce_scratch(direct, 16 * mib, DType::float32, 32) == Bytes{62 * mib});
    for (const auto implementation : {ring, direct, library}) {
        CHECK(all_reduce_scratch(implementation, 1000, DType::float64, 1) == Bytes{0});
        CHECK(all_reduce_scratch(implementation, 0, DType::float64, 8) == Bytes{0});
    }
}

TEST_CASE("the predicted difference from the exact mean is what real ranks find, to the bit") {
    struct Message {
        int ranks;
        std::int64_t elements;
        DType dtype;
    };
    for (const Message& c :
         {Message{2, 1000, DType::float32}, Message{3, 1000, DType::float32},
          Message{4, 3, DType::float32}, Message{5, 70'001, DType::float64},
          Message{8, 300'000, DType::float32}, Message{6, 999, DType::bfloat16},
          Message{3, 1'000'003, DType::float16}, Message{1, 10, DType::float32}}) {
        for (const auto implementation : {ring, direct, library}) {
            INFO(c.ranks << " ranks, " << c.elements << " of " << name_of(c.dtype) << ", "
                         << name_of(implementation));
            std::vector<double> measured(static_cast<std::size_t>(c.ranks));
            const auto outcomes = on_ranks(c.ranks, [&](GlooConnection& connection, int rank) {
                std::vector<double> memory(static_cast<std::size_t>(c.elements));  // room for all
                write_known_message(memory.data(), c.elements, c.dtype, rank);
                connection.communicator(implementation)
                    .all_reduce_sum(memory.data(), c.elements, c.dtype);
                measured[static_cast<std::size_t>(rank)] =
                    check_known_sum(memory.data(), c.elements, c.dtype, c.ranks).largest_difference;
            });
            for (const auto& outcome : outcomes) {
                REQUIRE(outcome.ending == testing::Ending::well);
            }
            const double predicted =
                all_reduce_difference(implementation, c.elements, c.dtype, c.ranks);
            for (const double difference : measured) {
                CHECK(difference == predicted);
            }
        }
    }
}

TEST_CASE("ring and direct exchange add in the same order, and the order matters") {
    for (const std::int64_t ranks : {3, 8, 17}) {
        CHECK(all_reduce_difference(ring, 5000, DType::float32, ranks) ==
              all_reduce_difference(direct, 5000, DType::float32, ranks));
    }
    // Downwards and upwards round: other roundings, so with enough elements another worst one.
    CHECK(all_reduce_difference(ring, 50'000, DType::float32, 17) !=
          all_reduce_difference(library, 50'000, DType::float32, 17));
    // One addition rounds alike whichever way round it is done.
    CHECK(all_reduce_difference(ring, 5000, DType::float32, 2) ==
          all_reduce_difference(library, 5000, DType::float32, 2));
    // Terms in [1, 2) are multiples of 2^-23. Their sum in [2, 4) has steps of 2^-22, so where it
    // rounds it is off by half of that, and the mean by 2^-24.
    CHECK(all_reduce_difference(ring, 5000, DType::float32, 2) == 0x1p-24);
}

}  // namespace
}  // namespace bucketwise
