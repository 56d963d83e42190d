#include "hw/measure/rank_session.h"

#include <algorithm>
#include <set>

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("every round measures every item once") {
    for (std::int64_t round = 0; round < 50; ++round) {
        std::vector<std::int32_t> order = order_of_round(20, 1, round);
        std::sort(order.begin(), order.end());
        REQUIRE(order.size() == 20);
        for (std::int32_t i = 0; i < 20; ++i) {
            CHECK(order[static_cast<std::size_t>(i)] == i);
        }
    }
}

TEST_CASE("rounds and seeds give different orders, the same ones the same") {
    std::set<std::vector<std::int32_t>> orders;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        for (std::int64_t round = 0; round < 10; ++round) {
            orders.insert(order_of_round(10, seed, round));
            CHECK(order_of_round(10, seed, round) == order_of_round(10, seed, round));
        }
    }
    CHECK(orders.size() == 100);
}

TEST_CASE("no item prefers a place in the round") {
    // 4,000 rounds of 4 items: each place holds each item 1,000 times, with a standard deviation
    // of sqrt(4000 x 1/4 x 3/4) = 27. Five of them are 137.
    int count[4][4] = {};
    for (std::int64_t round = 0; round < 4000; ++round) {
        const std::vector<std::int32_t> order = order_of_round(4, 7, round);
        for (std::size_t place = 0; place < 4; ++place) {
            ++count[place][order[place]];
        }
    }
    for (const auto& place : count) {
        for (const int times : place) {
            CHECK(std::abs(times - 1000) < 137);
        }
    }
}

}  // namespace
}  // namespace bucketwise
