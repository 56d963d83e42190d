#include "sim/engine/varied_steps.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("the slowest of p ranks is where the largest of p normal deviates lies", "[ranks]") {
    const Variation variation{.rank_spread = 0.01};
    // The median of the largest of p is z with F(z) = 0.5^(1/p). Normal quantiles of 0.5,
    // 0.5^(1/2) = 0.7071068, 0.5^(1/8) = 0.9170040 and 0.5^(1/100000) = 1 - 6.931448e-6, from
    // tables: 0, 0.5449521, 1.3851981 and 4.3460215.
    CHECK(slowest_factor(1, variation, 0.5) == Approx(1).margin(1e-12));
    CHECK(slowest_factor(2, variation, 0.5) == Approx(1 + 0.01 * 0.5449521).epsilon(1e-8));
    CHECK(slowest_factor(8, variation, 0.5) == Approx(1 + 0.01 * 1.3851981).epsilon(1e-7));
    const double z = (slowest_factor(100'000, variation, 0.5) - 1) / 0.01;
    CHECK(0.5 * std::erfc(z / std::sqrt(2.0)) == Approx(6.931448e-6).epsilon(1e-5));
}

TEST_CASE("the slowest of 20 ranks is spread as the largest of 20 that are drawn one by one",
          "[ranks]") {
    const Variation variation{
        .rank_spread = 0.05, .straggler_probability = 0.02, .straggler_slowdown = 1.3};
    Normal normal(7);
    std::vector<double> drawn;
    std::vector<double> inverted;
    for (int i = 0; i < 20'000; ++i) {
        double largest = 0;
        for (int rank = 0; rank < 20; ++rank) {
            const double slower = normal.uniform() <= 0.02 ? 1.3 : 1;
            largest = std::max(largest, slower * (1 + 0.05 * normal()));
        }
        drawn.push_back(largest);
        inverted.push_back(slowest_factor(20, variation, normal.uniform()));
    }
    std::sort(drawn.begin(), drawn.end());
    std::sort(inverted.begin(), inverted.end());
    // Kolmogorov and Smirnov: two samples of n of one distribution are further apart than
    // 1.95 sqrt(2 / n) = 0.0195 in one of 1,000 cases; this is one case, from a seed.
    double furthest = 0;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
        const auto below = std::lower_bound(inverted.begin(), inverted.end(), drawn[i]);
        const double share = static_cast<double>(below - inverted.begin()) / 20'000;
        furthest = std::max(furthest, std::abs(share - static_cast<double>(i) / 20'000));
    }
    CHECK(furthest < 0.0195);
}

TEST_CASE("at least one of p ranks is a straggler with the probability 1 - (1 - q)^p", "[ranks]") {
    const Variation variation{.straggler_probability = 0.001, .straggler_slowdown = 1.5};
    // With probability 0.999^1000 = 0.36769542 no rank of 1,000 is a straggler.
    CHECK(slowest_factor(1000, variation, 0.3676954) == 1.0);
    CHECK(slowest_factor(1000, variation, 0.3676955) == 1.5);
    CHECK(slowest_factor(1, variation, 0.99899) == 1.0);
    CHECK(slowest_factor(1, variation, 0.99901) == 1.5);
}

TEST_CASE("ranks that do not vary are as slow as ever, whatever is drawn", "[ranks]") {
    for (const double uniform : {1e-16, 0.5, 1.0}) {
        CHECK(slowest_factor(100'000, Variation{}, uniform) == 1.0);
        CHECK(slowest_factor(8, Variation{.straggler_probability = 1}, uniform) == 1.0);
    }
    CHECK(slowest_factor(8, {.straggler_probability = 1, .straggler_slowdown = 2}, 1e-16) == 2.0);
    Normal normal(1);
    CHECK(varied_classes({}, 8, Variation{.compute_spread = 0.1}, normal).empty());
}

TEST_CASE("each class draws its own slowest rank", "[ranks]") {
    const Variation variation{.rank_spread = 0.1};
    Normal normal(3);
    const auto classes = varied_classes({{2, 1.5}, {1'000'000, 1}}, 1'000'002, variation, normal);
    Normal same(3);
    const double first = slowest_factor(2, variation, same.uniform());
    const double second = slowest_factor(1'000'000, variation, same.uniform());
    CHECK(classes == std::vector<RankClass>{{2, 1.5 * first}, {1'000'000, second}});
    CHECK(second > 1.4);  // the largest of a million deviates lies beyond 4
}

}  // namespace
}  // namespace bucketwise
