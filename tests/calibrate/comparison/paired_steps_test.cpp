#include "calibrate/comparison/paired_steps.h"

#include <cmath>

#include "sim/engine/varied_steps.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using Rounds = std::vector<std::optional<double>>;
constexpr double outside = 0.05;

TEST_CASE("drift that all plans share is in no difference of theirs") {
    // The machine slows down threefold; the second plan is 10 % slower in each round.
    const PairedSteps steps(
        {Rounds{100.0, 150.0, 200.0, 300.0}, Rounds{110.0, 165.0, 220.0, 330.0}});
    CHECK(steps.slower_than(0)[1].value() == Approx(0.1));
    const SlowerBy slower = steps.slower(1, 0, outside).value();
    CHECK(slower.middle == Approx(0.1));
    CHECK(slower.low == Approx(0.1));
    CHECK(slower.high == Approx(0.1));
}

TEST_CASE("plans are compared in the rounds that both were measured in") {
    const PairedSteps steps({Rounds{100.0, 100.0, 200.0, 200.0},
                             Rounds{std::nullopt, std::nullopt, 220.0, 220.0},
                             Rounds{130.0, 130.0, std::nullopt, std::nullopt}});
    CHECK(steps.rounds_of(1, 1) == 2);
    CHECK(steps.rounds_of(1, 0) == 2);
    CHECK(steps.rounds_of(1, 2) == 0);
    CHECK(steps.slower_than(0)[1].value() == Approx(0.1));
    CHECK(steps.slower_than(0)[2].value() == Approx(0.3));
    CHECK_FALSE(steps.slower_than(1)[2].has_value());
    CHECK_FALSE(steps.slower(1, 2, outside).has_value());
}

TEST_CASE("of one round nothing says how far others lie apart") {
    const PairedSteps steps({Rounds{100.0}, Rounds{120.0}});
    CHECK(steps.slower_than(0)[1].value() == Approx(0.2));
    CHECK_FALSE(steps.slower(1, 0, outside).has_value());
}

TEST_CASE(
    "the interval is Student's of the differences of logarithms, weighed with what pairs share") {
    // Differences of the one pair: ln 1.1 and ln 1.3, mean 0.178837, variance (ln 1.3 - ln 1.1)^2 /
    // 2 = 0.0139535. The pool is this pair's own, so the variance stays; t of 1 + 4 degrees of
    // freedom is beyond 2.570582 in 5 % of cases: half width 2.570582 sqrt(0.0139535 / 2) =
    // 0.214714.
    const PairedSteps steps({Rounds{100.0, 100.0}, Rounds{110.0, 130.0}});
    const SlowerBy slower = steps.slower(1, 0, outside).value();
    CHECK(slower.middle == Approx(std::expm1(0.178837)).epsilon(1e-5));
    CHECK(slower.low == Approx(std::expm1(0.178837 - 0.214714)).epsilon(1e-4));
    CHECK(slower.high == Approx(std::expm1(0.178837 + 0.214714)).epsilon(1e-4));
}

TEST_CASE("a single round that is far off neither moves a difference nor widens it much") {
    const PairedSteps steps(
        {Rounds{100.0, 100.0, 100.0, 100.0, 100.0}, Rounds{109.0, 110.0, 111.0, 110.0, 400.0}});
    // The smallest and the largest of five are left out: 1.10, 1.10, 1.11.
    CHECK(steps.slower_than(0)[1].value() == Approx(std::cbrt(1.1 * 1.1 * 1.11) - 1));
    CHECK(steps.slower(1, 0, outside)->high < 0.13);
}

TEST_CASE("intervals hold the truth as often as they say") {
    // Two plans, 3 % apart, eight rounds whose speed varies by 10 % and single steps by 2 %. The
    // intervals of 950 in 1,000 draws hold the truth in the mean, with a deviation of 7.
    Normal normal(7);
    std::int64_t held = 0;
    for (int draw = 0; draw < 1000; ++draw) {
        std::vector<Rounds> steps(3);
        for (int round = 0; round < 8; ++round) {
            const double speed = 0.1 * normal();
            for (std::size_t plan = 0; plan < steps.size(); ++plan) {
                const double effect = plan == 1 ? std::log(1.03) : 0.0;
                steps[plan].emplace_back(1000 * std::exp(speed + effect + 0.02 * normal()));
            }
        }
        const SlowerBy slower = PairedSteps(steps).slower(1, 0, outside).value();
        held += slower.low <= 0.03 && 0.03 <= slower.high ? 1 : 0;
    }
    CHECK(held >= 925);
    CHECK(held <= 980);
}

}  // namespace
}  // namespace bucketwise
