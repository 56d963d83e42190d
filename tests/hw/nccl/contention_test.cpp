// The operations that count beside collectives: intervals made up, no GPU.
#include <vector>

#include "hw/nccl/contention.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Interval between_us(double begin, double end) {
    return {duration_from_us(begin), duration_from_us(end)};
}

// Three all-reduces from 100 us to 200 us; operation 1 is a matrix product.
RanTogether beside_all_reduces(std::vector<RanOperation> operations) {
    return {.all_reduces = {between_us(100, 130), between_us(130, 150), between_us(150, 200)},
            .operations = std::move(operations)};
}

const OperationsAlone& alone() {
    static const OperationsAlone operations{.times = {duration_from_us(8), duration_from_us(5)},
                                            .are_products = {false, true}};
    return operations;
}

ContentionTrace counted(std::vector<RanOperation> operations, double stamp_us = 0) {
    return contention_of(beside_all_reduces(std::move(operations)), alone(),
                         duration_from_us(stamp_us));
}

Disturbance disturbance_us(double disturbed, double alone) {
    return {duration_from_us(disturbed), duration_from_us(alone)};
}

TEST_CASE("operations beside all-reduces count, matrix products apart, without what a stamp adds") {
    const ContentionTrace trace = counted(
        {{0, between_us(100, 112)}, {1, between_us(112, 119)}, {0, between_us(188, 200)}}, 1);
    CHECK(trace.times ==
          std::vector{duration_from_us(30), duration_from_us(20), duration_from_us(50)});
    CHECK(trace.compute == disturbance_us(11 + 6 + 11, 8 + 5 + 8));
    CHECK(trace.products == disturbance_us(6, 5));
}

TEST_CASE("an operation that waited for the host to launch it does not count") {
    const ContentionTrace trace = counted({{0, between_us(110, 150), true},
                                           {1, between_us(150, 160), true},
                                           {0, between_us(160, 170), false}});
    CHECK(trace.compute == disturbance_us(10, 8));
    CHECK(trace.products == Disturbance{});
}

TEST_CASE(
    "an operation that began before the first all-reduce or ended after the last one does "
    "not count") {
    const ContentionTrace trace = counted({{1, between_us(80, 90)},
                                           {0, between_us(99, 110)},
                                           {1, between_us(110, 120)},
                                           {0, between_us(190, 201)},
                                           {1, between_us(201, 210)}});
    CHECK(trace.compute == disturbance_us(10, 5));
    CHECK(trace.products == disturbance_us(10, 5));
}

TEST_CASE("an operation of less than a stamp takes some time all the same") {
    const ContentionTrace trace = counted({{0, between_us(110, 111)}}, 2);
    CHECK(trace.compute.disturbed == Duration{1});
}

TEST_CASE("where no operation counts, times are zero and all-reduces are there") {
    const ContentionTrace trace = counted({{0, between_us(120, 130), true}});
    CHECK(trace.times.size() == 3);
    CHECK(trace.compute == Disturbance{});
    CHECK(trace.products == Disturbance{});
    const ContentionTrace nothing = contention_of({}, alone(), Duration{0});
    CHECK(nothing.times.empty());
    CHECK(nothing.compute == Disturbance{});
}

}  // namespace
}  // namespace bucketwise
