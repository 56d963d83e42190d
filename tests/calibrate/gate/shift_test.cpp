#include "calibrate/gate/shift.h"

#include <cmath>
#include <random>

#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr double rate = 0.01;

// A process of first order: each sample is a share of the one before, and something new.
std::vector<double> serial(std::size_t count, double correlation, std::mt19937_64& bits) {
    std::normal_distribution<double> normal;
    std::vector<double> samples;
    double state = normal(bits);
    for (std::size_t i = 0; i < count; ++i) {
        samples.push_back(state);
        state = correlation * state + std::sqrt(1 - correlation * correlation) * normal(bits);
    }
    return samples;
}

// The share of pairs of unchanged runs that are called more.
double called_more(std::size_t count, double correlation) {
    std::mt19937_64 bits(7);
    constexpr int pairs = 2000;
    int more = 0;
    for (int i = 0; i < pairs; ++i) {
        const std::vector<double> before = serial(count, correlation, bits);
        const std::vector<double> after = serial(count, correlation, bits);
        more += shift_between({before}, {after}, rate).is_more ? 1 : 0;
    }
    return static_cast<double>(more) / pairs;
}

TEST_CASE("the chance of ranks is that of all ways to deal them out", "[shift]") {
    // {4, 5, 6} are the largest three of six: 1 of C(6, 3) = 20 ways.
    CHECK(chance_of_ranks({1, 2, 3}, {4, 5, 6}) == Approx(1.0 / 20));
    // The least three: each of the 20 ways has a sum as large.
    CHECK(chance_of_ranks({4, 5, 6}, {1, 2, 3}) == Approx(1.0));
    // Ranks 2, 3, 6 sum to 11. As large are 11 or more: {1,4,6} {2,3,6} {2,4,5} (11), {1,5,6}
    // {2,4,6} {3,4,5} (12), {2,5,6} {3,4,6} (13), {3,5,6} (14), {4,5,6} (15): 10 of 20.
    CHECK(chance_of_ranks({1, 4, 5}, {2, 3, 6}) == Approx(10.0 / 20));
    // Equal samples have mean ranks: 1, 1, 1, 1 can be dealt out in one way only.
    CHECK(chance_of_ranks({1, 1}, {1, 1}) == Approx(1.0));
    // {1, 2.5} and {2.5, 4}: sums of two of the four ranks are 3.5, 3.5, 5, 5, 6.5, 6.5.
    CHECK(chance_of_ranks({1, 2}, {2, 3}) == Approx(2.0 / 6));
}

TEST_CASE("of many samples the chance of ranks is the normal distribution's", "[shift]") {
    std::mt19937_64 bits(1);
    const std::vector<double> before = serial(30, 0, bits);
    std::vector<double> after = serial(30, 0, bits);
    const double exact = chance_of_ranks(before, after);
    // One more is beyond what is counted; it lies in the middle, where it changes little.
    after.push_back(0);
    CHECK(chance_of_ranks(before, after) == Approx(exact).margin(0.03));
}

TEST_CASE("a shift is the median of all differences, and outliers do not move it", "[shift]") {
    const std::vector<double> before{14, 10, 19, 12, 16, 11, 18, 13, 17, 15};
    std::vector<double> after = before;
    for (double& sample : after) {
        sample += 20;
    }
    after[2] = 1e6;  // which a trimmed mean ignores too
    const Shift shift = shift_between({before}, {after}, rate);
    CHECK(shift.middle == Approx(20).margin(1));
    CHECK(shift.is_more);
    CHECK(!shift.is_less);
    CHECK(shift_between({after}, {before}, rate).is_less);
}

TEST_CASE("few samples tell nothing, however far apart they are", "[shift]") {
    // For 4 and 4 samples there are C(8, 4) = 70 ways, so that chance is 1.4 % at least; of 5 and 5
    // 252.
    const Shift four = shift_between({{1, 2, 3, 4}}, {{101, 102, 103, 104}}, rate);
    CHECK(!four.can_be_told);
    CHECK(!four.is_more);
    CHECK(four.enough == 5);
    const Shift five = shift_between({{1, 4, 2, 5, 3}}, {{101, 104, 102, 105, 103}}, rate);
    CHECK(five.can_be_told);
    CHECK(five.is_more);
    CHECK(!shift_between({{1}}, {{2}}, rate).can_be_told);
}

TEST_CASE("unchanged samples are called more as often as is said", "[shift]") {
    // 1 % of 2000 is 20, with a deviation of 4.4.
    CHECK(called_more(10, 0) <= 0.017);
    CHECK(called_more(40, 0) <= 0.017);
}

TEST_CASE("what follows one another counts for less, the more there is of it the surer",
          "[shift]") {
    // Without a correction 7 % and more of such pairs would be called more.
    CHECK(called_more(100, 0.5) <= 0.02);
    CHECK(called_more(10, 0.3) <= 0.03);
    std::mt19937_64 bits(3);
    // (1 + 0.5) / (1 - 0.5) = 3 times the variance.
    CHECK(serial_loss({serial(2000, 0.5, bits)}, {serial(2000, 0.5, bits)}).inflation ==
          Approx(3).margin(0.4));
    CHECK(serial_loss({serial(2000, 0, bits)}, {serial(2000, 0, bits)}).inflation ==
          Approx(1).margin(0.1));
    CHECK(serial_loss({{1, 2, 3}}, {{3, 2, 1}}) == SerialLoss{});  // too few tell nothing
}

TEST_CASE("where runs differ among themselves a shift has to be beyond that", "[shift]") {
    // Steps within a run differ by 1, runs by 10: a run that is 15 later than the mean of three is
    // none that one has to wonder at. t of 2 degrees at 1 % is 6.96, the error 10 sqrt(1 + 1/3).
    const auto run = [](double at) {
        return std::vector<double>{at, at + 1, at - 1, at + 0.5, at - 0.5, at + 0.2};
    };
    const RunSamples before{run(90), run(100), run(110)};
    const Shift known = shift_between(before, {run(115)}, rate);
    CHECK(known.runs_are_known);
    CHECK(!known.is_more);
    CHECK(shift_between(before, {run(200)}, rate).is_more);  // beyond 100 + 6.96 * 11.5 = 180
    const Shift unknown = shift_between({run(100)}, {run(115)}, rate);
    CHECK(!unknown.runs_are_known);
    CHECK(unknown.is_more);
}

TEST_CASE("what is called tellable is told 95 times in 100", "[shift]") {
    std::mt19937_64 bits(5);
    int told = 0;
    constexpr int pairs = 500;
    for (int i = 0; i < pairs; ++i) {
        const std::vector<double> before = serial(20, 0, bits);
        std::vector<double> after = serial(20, 0, bits);
        const double tellable = shift_between({before}, {after}, rate).tellable;
        for (double& sample : after) {
            sample += tellable;
        }
        told += shift_between({before}, {after}, rate).is_more ? 1 : 0;
    }
    CHECK(told >= 0.92 * pairs);
}

}  // namespace
}  // namespace bucketwise
