#include "sim/base/statistics.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("What rows and columns do not account for is each value's own", "[statistics]") {
    // Rows that are 1 and 5 apart and columns that are 10 apart account for all of it.
    CHECK(own_deviation({{0, 10, 20}, {1, 11, 21}, {6, 16, 26}}) == Approx(0).margin(1e-12));
    // 3 more in one corner: 3 (1 - 1/2 - 1/2 + 1/4) = 3/4 there and in the opposite corner, -3/4 in
    // the others: 4 (3/4)^2 over (2 - 1) (2 - 1), whose root is 1.5.
    CHECK(own_deviation({{3, 0}, {0, 0}}) == Approx(1.5));
}

}  // namespace
}  // namespace bucketwise
