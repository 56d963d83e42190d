#include "calibrate/link/link_fit.h"

#include <cmath>
#include <random>

#include "calibrate/link/non_negative_least_squares.h"
#include "sim/base/error.h"
#include "sim/link/collective.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

LinkParameters ring(std::vector<Segment> segments, double launch_us = 0) {
    LinkParameters link;
    link.algorithm = Algorithm::ring;
    link.segments = std::move(segments);
    link.launch = duration_from_us(launch_us);
    return link;
}

Segment segment(std::optional<Bytes> up_to, double latency_us, double gb_per_s) {
    Segment s;
    s.up_to = up_to;
    s.latency = duration_from_us(latency_us);
    s.bandwidth = bandwidth_from_gb_per_s(gb_per_s);
    return s;
}

double exact_us(const LinkParameters& link, std::int64_t ranks, Bytes size) {
    return to_us(collective_time(CollectiveKind::all_reduce, size, {ranks, ranks}, link));
}

// Powers of two from 1 KiB on, each with a normal error of `noise`, a share of its time.
std::vector<LinkPoint> points_of(const LinkParameters& link, const std::vector<std::int64_t>& ranks,
                                 int sizes, double noise, std::mt19937& random) {
    std::normal_distribution<double> normal;
    std::vector<LinkPoint> points;
    for (const std::int64_t p : ranks) {
        for (int i = 0; i < sizes; ++i) {
            const Bytes size{std::int64_t{1024} << i};
            const double us = exact_us(link, p, size);
            points.push_back({.ranks = p,
                              .size = size,
                              .median_us = us * std::max(1 + noise * normal(random), 0.1),
                              .standard_error_us = noise * us,
                              .samples = 10});
        }
    }
    return points;
}

double gb_per_s(const Segment& s) {
    return static_cast<double>(s.bandwidth.count) / 1e9;
}

TEST_CASE("without noise the link that made the points comes back") {
    std::mt19937 random(1);
    const LinkParameters link = ring({segment(std::nullopt, 40, 1.25)});
    const LinkFit fit = fit_link(Algorithm::ring, points_of(link, {2}, 14, 0, random), "m.jsonl");
    REQUIRE(fit.segments.size() == 1);
    CHECK(to_us(fit.segments[0].latency) == Approx(40).epsilon(1e-6));
    CHECK(gb_per_s(fit.segments[0]) == Approx(1.25).epsilon(1e-6));
    CHECK(fit.launch == Duration{0});
    CHECK(fit.warnings.empty());
}

TEST_CASE("several numbers of ranks tell a direct exchange's messages from its latency") {
    std::mt19937 random(3);
    LinkParameters link = ring({segment(std::nullopt, 200, 1.25)});
    link.algorithm = Algorithm::direct;
    link.message = duration_from_us(12);
    const LinkFit fit =
        fit_link(Algorithm::direct, points_of(link, {2, 4, 8}, 12, 0.01, random), "m.jsonl");
    CHECK(to_us(fit.message) == Approx(12).epsilon(0.05));
    CHECK(fit.message_standard_error_us > 0);
    CHECK(fit.message_standard_error_us < 0.6);  // 5 % of it
    CHECK(to_us(fit.segments[0].latency) == Approx(200).epsilon(0.05));
    CHECK(fit.launch == Duration{0});  // of what does not grow with ranks, latency is all
    // Extrapolated: 64 ranks send 126 messages instead of 14.
    LinkParameters fitted = link;
    fitted.segments = fit.segments;
    fitted.message = fit.message;
    CHECK(exact_us(fitted, 64, {4096}) == Approx(exact_us(link, 64, {4096})).epsilon(0.05));
    // One number of ranks: nothing tells the two apart, and their sum is called latency.
    const LinkFit one =
        fit_link(Algorithm::direct, points_of(link, {4}, 12, 0.0, random), "m.jsonl");
    CHECK(one.message == Duration{0});
    CHECK(to_us(one.segments[0].latency) == Approx(200 + 12 * 3));
}

TEST_CASE("a kind of collectives is fitted by its own steps and bytes, and a known message") {
    LinkParameters link;
    link.algorithm = Algorithm::direct;
    link.segments = {{.latency = duration_from_us(20), .bandwidth = {1'000'000'000}}};
    link.message = duration_from_us(3);
    std::vector<LinkPoint> points;
    for (const std::int64_t ranks : {2, 4, 8}) {
        for (std::int64_t bytes = 1000; bytes < 1'000'000'000; bytes *= 10) {
            const Duration time =
                collective_time(CollectiveKind::reduce_scatter, {bytes}, {ranks, ranks}, link);
            points.push_back({.ranks = ranks,
                              .size = {bytes},
                              .median_us = to_us(time),
                              .samples = 5,
                              .kind = CollectiveKind::reduce_scatter});
        }
    }
    const LinkFit fit = fit_link(Algorithm::direct, points, "points", {}, duration_from_us(3));
    REQUIRE(fit.segments.size() == 1);
    CHECK(to_us(fit.segments[0].latency) == Approx(20).epsilon(1e-4));
    CHECK(to_gb_per_s(fit.segments[0].bandwidth) == Approx(1).epsilon(1e-4));
    CHECK(fit.message == Duration{0});
    // As all-reduces, of twice the steps and bytes, they would be of a link twice as fast.
    for (LinkPoint& point : points) {
        point.kind = CollectiveKind::all_reduce;
    }
    const LinkFit other = fit_link(Algorithm::direct, points, "points");
    CHECK(to_us(other.segments[0].latency) == Approx(10).epsilon(1e-3));
    CHECK(to_gb_per_s(other.segments[0].bandwidth) == Approx(2).epsilon(1e-3));
    CHECK(to_us(other.message) == Approx(1.5).epsilon(1e-3));
}

TEST_CASE("ranks that took turns on processors are fitted as if each had its own") {
    std::mt19937 random(4);
    LinkParameters link = ring({segment(std::nullopt, 100, 0.8)});
    link.algorithm = Algorithm::direct;
    link.message = duration_from_us(50);
    link.processors = 2;
    const std::vector<LinkPoint> points = points_of(link, {2, 4}, 10, 0.01, random);
    const LinkFit fit = fit_link(Algorithm::direct, points, "m.jsonl", 2);
    CHECK(to_us(fit.message) == Approx(50).epsilon(0.1));
    CHECK(to_us(fit.segments[0].latency) == Approx(100).epsilon(0.1));
    CHECK(gb_per_s(fit.segments[0]) == Approx(0.8).epsilon(0.05));
    for (const LinkResidual& residual : fit.residuals) {
        CHECK(std::abs(residual.relative()) < 0.05);
    }
    // A fit that ignores the turns finds twice the cost of each message: 4 ranks send 6, and take
    // turns by two.
    const LinkFit unaware = fit_link(Algorithm::direct, points, "m.jsonl");
    CHECK(unaware.message > 2 * fit.message);
}

TEST_CASE("a fit at 2 ranks predicts 4 and 8, as it is made of steps and bytes on the wire") {
    std::mt19937 random(2);
    const LinkParameters link = ring({segment(Bytes{60'000}, 30, 0.4), segment({}, 90, 1.0)});
    const LinkFit fit =
        fit_link(Algorithm::ring, points_of(link, {2}, 16, 0.01, random), "m.jsonl");
    const LinkParameters fitted = ring(fit.segments);
    for (const std::int64_t ranks : {4, 8}) {
        for (const std::int64_t bytes : {4096, 1 << 20, 1 << 25}) {
            CHECK(exact_us(fitted, ranks, {bytes}) ==
                  Approx(exact_us(link, ranks, {bytes})).epsilon(0.05));
        }
    }
}

TEST_CASE("the number of segments is found: one, two or three") {
    std::mt19937 random(3);
    const std::vector<LinkParameters> links{
        ring({segment({}, 20, 2)}), ring({segment(Bytes{100'000}, 20, 0.2), segment({}, 200, 2)}),
        ring({segment(Bytes{20'000}, 10, 0.1), segment(Bytes{1'500'000}, 150, 1),
              segment({}, 2000, 10)})};
    for (std::size_t i = 0; i < links.size(); ++i) {
        const LinkFit fit =
            fit_link(Algorithm::ring, points_of(links[i], {2}, 18, 0.005, random), "m.jsonl");
        CHECK(fit.segments.size() == i + 1);
        for (const LinkResidual& residual : fit.residuals) {
            CHECK(std::abs(residual.relative()) < 0.03);
        }
    }
}

TEST_CASE("two numbers of ranks tell the launch cost from latency") {
    std::mt19937 random(4);
    const LinkParameters link = ring({segment({}, 25, 1)}, 500);
    const LinkFit fit =
        fit_link(Algorithm::ring, points_of(link, {2, 4, 8}, 12, 0.002, random), "m.jsonl");
    CHECK(to_us(fit.launch) == Approx(500).epsilon(0.05));
    CHECK(to_us(fit.segments.front().latency) == Approx(25).epsilon(0.1));
}

TEST_CASE("an outlier is left out and named") {
    std::mt19937 random(5);
    const LinkParameters link = ring({segment({}, 40, 1)});
    std::vector<LinkPoint> points = points_of(link, {2}, 14, 0.01, random);
    points[6].median_us *= 3;
    const LinkFit fit = fit_link(Algorithm::ring, points, "m.jsonl");
    CHECK(gb_per_s(fit.segments.back()) == Approx(1).epsilon(0.03));
    REQUIRE(fit.warnings.size() == 1);
    CHECK(fit.warnings[0].find("left out 65536 bytes on 2 ranks") == 0);
    CHECK(fit.residuals[6].dropped);
}

// More points than are tried one by one are off by more than a twentieth.
TEST_CASE("an outlier is found among hundreds of points that are far off") {
    const LinkParameters link = ring({segment({}, 40, 1)});
    std::mt19937 random(15);
    std::normal_distribution<double> normal;
    std::vector<LinkPoint> points;
    for (std::int64_t i = 1; i <= 300; ++i) {
        const double us = exact_us(link, 2, {i * 65536});
        points.push_back({.ranks = 2,
                          .size = {i * 65536},
                          .median_us = us * std::exp(0.1 * normal(random)),
                          .standard_error_us = 0.1 * us});
    }
    points[199].median_us *= 30;
    const LinkFit fit = fit_link(Algorithm::ring, points, "m.jsonl");
    CHECK(gb_per_s(fit.segments.back()) == Approx(1).epsilon(0.1));
    CHECK(fit.residuals[199].dropped);
    CHECK(std::ranges::count_if(fit.residuals, &LinkResidual::dropped) == 1);
}

TEST_CASE("one size is refused, and few or close ones are warned of") {
    std::mt19937 random(6);
    const LinkParameters link = ring({segment({}, 40, 1)});
    const std::vector<LinkPoint> one{points_of(link, {2}, 1, 0, random)};
    CHECK_THROWS_AS(fit_link(Algorithm::ring, one, "m.jsonl"), InputError);
    CHECK_THROWS_AS(fit_link(Algorithm::ring, {}, "m.jsonl"), InputError);
    const LinkFit two = fit_link(Algorithm::ring, points_of(link, {2}, 2, 0, random), "m.jsonl");
    CHECK(two.warnings.size() == 2);
    CHECK(to_us(two.segments[0].latency) == Approx(40));
}

// A time that falls with size would be a negative bandwidth, one that starts below zero a negative
// latency.
TEST_CASE("no latency or bandwidth is negative, whatever was measured") {
    std::mt19937 random(7);
    for (int round = 0; round < 2000 / BUCKETWISE_TEST_SHARE; ++round) {
        std::uniform_real_distribution<double> log_time(0, 12);
        std::vector<LinkPoint> points;
        const int sizes = 2 + round % 15;
        for (int i = 0; i < sizes; ++i) {
            points.push_back({.ranks = 2 + 2 * (i % (1 + round % 2)),
                              .size = {std::int64_t{1024} << (i / 2)},
                              .median_us = std::exp(log_time(random)),
                              .standard_error_us = 1,
                              .samples = 3});
        }
        if (points.front().size == points.back().size) {
            continue;
        }
        const LinkFit fit = fit_link(Algorithm::ring, points, "m.jsonl");
        Bytes before{0};
        for (const Segment& s : fit.segments) {
            CHECK(s.latency >= Duration{0});
            CHECK(s.bandwidth.count > 0);
            CHECK(s.bandwidth <= bandwidth_from_gb_per_s(1e6));
            CHECK(s.errors->latency_us >= 0);
            CHECK(std::abs(s.errors->correlation) <= 1);
            CHECK((!s.up_to || *s.up_to > before));
            before = s.up_to.value_or(before);
        }
    }
}

// Every draw is another machine, its true parameters known. Standard errors must hold what they
// promise: 95 % of true values lie within 1.96 of them, give or take what 3,000 draws leave open,
// or the 300 that there is time for under sanitizers.
TEST_CASE("true parameters lie within the standard errors under 5 % noise, on 3,000 machines") {
    std::mt19937 random(8);
    std::uniform_real_distribution<double> log_latency(std::log(1.0), std::log(1000.0));
    std::uniform_real_distribution<double> log_bandwidth(std::log(0.01), std::log(100.0));
    int latencies_within = 0;
    int bandwidths_within = 0;
    int fitted = 0;
    constexpr int random_machines = 3000 / BUCKETWISE_TEST_SHARE;
    for (int round = 0; round < random_machines; ++round) {
        const LinkParameters link =
            ring({segment({}, std::exp(log_latency(random)), std::exp(log_bandwidth(random)))});
        const LinkFit fit =
            fit_link(Algorithm::ring, points_of(link, {2}, 18, 0.05, random), "m.jsonl");
        if (fit.segments.size() != 1) {
            continue;  // noise that looks like a second segment; counted below
        }
        ++fitted;
        const Segment& s = fit.segments.front();
        const double latency_off = to_us(s.latency) - to_us(link.segments[0].latency);
        const double bandwidth_off = gb_per_s(s) - gb_per_s(link.segments[0]);
        latencies_within += std::abs(latency_off) <= 1.96 * s.errors->latency_us ? 1 : 0;
        bandwidths_within += std::abs(bandwidth_off) <= 1.96 * s.errors->bandwidth_gb_per_s ? 1 : 0;
    }
    CHECK(fitted > 0.95 * random_machines);
    CHECK(latencies_within > 0.92 * fitted);
    CHECK(latencies_within < 0.985 * fitted);
    CHECK(bandwidths_within > 0.92 * fitted);
    CHECK(bandwidths_within < 0.985 * fitted);
}

TEST_CASE("non-negative least squares finds the constrained minimum, on 1,000 random problems") {
    std::mt19937 random(9);
    std::normal_distribution<double> normal;
    for (int round = 0; round < 1000; ++round) {
        const Eigen::Index columns = 1 + round % 4;
        const Eigen::Index rows = columns + round % 7;
        Eigen::MatrixXd a(rows, columns);
        Eigen::VectorXd b(rows);
        for (Eigen::Index i = 0; i < rows; ++i) {
            b[i] = normal(random);
            for (Eigen::Index j = 0; j < columns; ++j) {
                a(i, j) = normal(random);
            }
        }
        const NonNegativeSolution solution = solve_non_negative(a, b);
        // The conditions of Karush, Kuhn and Tucker: no descent where x may grow, none at all where
        // it is free.
        const Eigen::VectorXd gradient = a.transpose() * (a * solution.x - b);
        for (Eigen::Index j = 0; j < columns; ++j) {
            CHECK(solution.x[j] >= 0);
            CHECK(gradient[j] >= -1e-8);
            CHECK(std::abs(gradient[j] * solution.x[j]) <= 1e-8);
        }
    }
}

TEST_CASE("a link far off what it was fitted to says so, and from 20 % on withholds advice") {
    CHECK_FALSE(residual_caveat(0.049, "all-reduces"));
    CHECK(residual_caveat(0.05, "all-reduces") ==
          Caveat{.text = "it is typically 5 % off the all-reduces that it was fitted to"});
    CHECK_FALSE(residual_caveat(0.199, "steps")->withholds);
    CHECK(residual_caveat(0.2, "steps") ==
          Caveat{.text = "it is typically 20 % off the steps that it was fitted to",
                 .withholds = true});
}

}  // namespace
}  // namespace bucketwise
