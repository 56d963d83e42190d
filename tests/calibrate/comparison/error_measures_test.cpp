#include "calibrate/comparison/error_measures.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("errors are relative to the measurement") {
    const std::vector<ComparedPoint> points{{1, 110, 100}, {2, 95, 100}};
    CHECK(relative_error(points[0]) == Approx(0.10));
    CHECK(relative_error(points[1]) == Approx(-0.05));
    CHECK(mean_absolute_percentage_error(points) == Approx(0.075));
    CHECK(largest_absolute_error(points) == Approx(0.10));
}

TEST_CASE("regret is what choosing by the prediction costs, not how wrong the prediction is") {
    // The prediction prefers 2, measured 105; the best measured is 100 at 3.
    CHECK(regret({{1, 300, 120}, {2, 200, 105}, {3, 250, 100}}, 1) == Approx(0.05));
    // Far off in value but right in choice.
    CHECK(regret({{1, 3, 120}, {2, 2, 105}, {3, 1, 100}}, 2) == 0.0);
}

TEST_CASE("rank correlation compares orders") {
    CHECK(rank_correlation({{1, 1, 10}, {2, 2, 20}, {3, 3, 400}}) == Approx(1.0));
    CHECK(rank_correlation({{1, 3, 10}, {2, 2, 20}, {3, 1, 30}}) == Approx(-1.0));
    CHECK(rank_correlation({{1, 5, 10}, {2, 5, 20}}) == 0.0);
    // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5: 4.5 /
    // sqrt(22.5).
    CHECK(rank_correlation({{1, 1, 1}, {2, 2, 2}, {3, 2, 3}, {4, 3, 4}}) == Approx(0.9486832981));
}

}  // namespace
}  // namespace bucketwise
