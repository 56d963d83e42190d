#include "calibrate/comparison/compared_steps.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

using Steps = std::vector<ComparedStep>;

TEST_CASE("errors are relative to the measurement") {
    const Steps steps{{110, 100}, {95, 100}};
    CHECK(steps[0].error() == Approx(0.10));
    CHECK(steps[1].error() == Approx(-0.05));
    CHECK(measure_errors(steps, 0).mape == Approx(0.075));
    CHECK(measure_errors(steps, 0).max_error == Approx(0.10));
}

TEST_CASE("regret is the cost of choosing by the prediction, not how wrong the prediction is") {
    // The prediction prefers the second, measured 105; the best measured is 100, the third.
    CHECK(measure_errors({{300, 120}, {200, 105}, {250, 100}}, 1).regret == Approx(0.05));
    // Far off in value but right in choice.
    CHECK(measure_errors({{3, 120}, {2, 105}, {1, 100}}, 2).regret == 0.0);
}

TEST_CASE("rank correlation compares orders") {
    const auto correlation = [](const Steps& steps) {
        return measure_errors(steps, 0).rank_correlation;
    };
    CHECK(correlation({{1, 10}, {2, 20}, {3, 400}}) == Approx(1.0));
    CHECK(correlation({{3, 10}, {2, 20}, {1, 30}}) == Approx(-1.0));
    CHECK(correlation({{5, 10}, {5, 20}}) == 0.0);
    // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5: 4.5 /
    // sqrt(22.5).
    CHECK(correlation({{1, 1}, {2, 2}, {2, 3}, {3, 4}}) == Approx(0.9486832981));
}

}  // namespace
}  // namespace bucketwise
