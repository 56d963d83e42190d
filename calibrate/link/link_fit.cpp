#include "calibrate/link/link_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include <fmt/format.h>
#include <Eigen/Core>

#include "calibrate/link/non_negative_least_squares.h"
#include "calibrate/link/segmentation.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

using Eigen::Index;

constexpr double model_error = 0.01;  // of a straight line, at best
constexpr double largest_gb_per_s = 1e6;

struct LinkModel {
    Algorithm algorithm = Algorithm::ring;
    std::optional<std::int64_t> processors = {};
    std::optional<Duration> message = {};  // none: fitted
};

// The unknown that all segments share.
enum class Common : std::uint8_t {
    nothing,
    launch,  // differs from latency as steps grow with the ranks
    message  // where steps do not grow, but messages do
};

// The regression's equation of one point:
//     us = (1 or messages) common + steps latency + megabytes / rate
struct Equation {
    double us = 0;  // without the known part of its messages
    double steps = 0;
    double messages = 0;
    double wire_megabytes = 0;
    double sigma_us = 0;
    std::size_t size_index = 0;  // among the distinct sizes
};

struct Problem {
    LinkModel model;
    Common common = Common::nothing;
    std::vector<LinkPoint> points;
    std::vector<Bytes> sizes;         // of the points, each once, rising
    std::vector<Equation> equations;  // by point

    [[nodiscard]] double count_of_common(const Equation& equation) const {
        return common == Common::message ? equation.messages : 1.0;
    }
};

double wire_share(const WireCost& cost) {
    return static_cast<double>(cost.wire.numerator) / static_cast<double>(cost.wire.denominator);
}

// One kind's counts alone: another kind's twice as many steps say nothing of launching.
Common common_of(const LinkModel& model, const std::vector<LinkPoint>& points) {
    const auto varies = [&](std::int64_t WireCost::*count) {
        const auto of = [&](const LinkPoint& point) {
            return wire_cost(points.front().kind, model.algorithm, point.ranks).*count;
        };
        return std::ranges::any_of(
            points, [&](const LinkPoint& point) { return of(point) != of(points.front()); });
    };
    return varies(&WireCost::steps)                        ? Common::launch
           : varies(&WireCost::messages) && !model.message ? Common::message
                                                           : Common::nothing;
}

Problem problem_of(const LinkModel& model, Common common, std::vector<LinkPoint> points) {
    Problem problem{model, common, std::move(points), {}, {}};
    problem.sizes = transformed(problem.points, &LinkPoint::size);
    std::ranges::sort(problem.sizes);
    problem.sizes.erase(std::unique(problem.sizes.begin(), problem.sizes.end()),
                        problem.sizes.end());
    for (const LinkPoint& point : problem.points) {
        const WireCost cost = wire_cost(point.kind, model.algorithm, point.ranks);
        // Ranks that take turns on processors make everything but a launch longer.
        const double turns = model.processors ? std::max(static_cast<double>(point.ranks) /
                                                             static_cast<double>(*model.processors),
                                                         1.0)
                                              : 1.0;
        const double messages = turns * static_cast<double>(cost.messages);
        problem.equations.push_back(
            {.us = std::max(point.median_us - messages * to_us(model.message.value_or(Duration{0})),
                            model_error * point.median_us),
             .steps = turns * static_cast<double>(cost.steps),
             .messages = messages,
             .wire_megabytes =
                 turns * wire_share(cost) * static_cast<double>(point.size.count) / 1e6,
             .sigma_us = std::max(point.standard_error_us, model_error * point.median_us),
             .size_index = static_cast<std::size_t>(
                 std::ranges::lower_bound(problem.sizes, point.size) - problem.sizes.begin())});
    }
    return problem;
}

std::size_t segment_of(const Segmentation& ends, std::size_t size_index) {
    return static_cast<std::size_t>(
        std::distance(ends.begin(), std::upper_bound(ends.begin(), ends.end(), size_index)));
}

struct Regression {
    Segmentation ends = {};
    NonNegativeSolution solution = {};  // the common unknown, then latency and 1 / rate by segment
    Common common = Common::nothing;

    [[nodiscard]] double chi_squared() const { return solution.residual_sum; }
    [[nodiscard]] Index column(std::size_t segment) const {
        return (common != Common::nothing ? 1 : 0) + 2 * static_cast<Index>(segment);
    }
    [[nodiscard]] double common_us() const { return common != Common::nothing ? solution.x[0] : 0; }
    // The standard error of an unknown. `scale`: see error_scale().
    [[nodiscard]] double error(Index unknown, double scale) const {
        return std::sqrt(std::max(scale * solution.covariance(unknown, unknown), 0.0));
    }
};

Regression regress(const Problem& problem, const Segmentation& ends) {
    Regression regression{.ends = ends, .common = problem.common};
    const auto rows = static_cast<Index>(problem.equations.size());
    Eigen::MatrixXd a = Eigen::MatrixXd::Zero(rows, regression.column(ends.size()));
    Eigen::VectorXd b(rows);
    for (Index row = 0; row < rows; ++row) {
        const Equation& e = problem.equations[static_cast<std::size_t>(row)];
        const Index column = regression.column(segment_of(ends, e.size_index));
        if (problem.common != Common::nothing) {
            a(row, 0) = problem.count_of_common(e) / e.sigma_us;
        }
        a(row, column) = e.steps / e.sigma_us;
        a(row, column + 1) = e.wire_megabytes / e.sigma_us;
        b[row] = e.us / e.sigma_us;
    }
    regression.solution = solve_non_negative(a, b);
    return regression;
}

// Sums over points, each divided by its variance: steps², steps wire, wire², steps us, wire us,
// us².
using Moments = Eigen::Array<double, 6, 1>;

// With the best latency and the best inverse rate, neither below 0.
double chi_squared_of(const Moments& m) {
    const double determinant = m[0] * m[2] - m[1] * m[1];
    if (determinant > 1e-12 * m[0] * m[2]) {
        const double latency = (m[2] * m[3] - m[1] * m[4]) / determinant;
        const double inverse = (m[0] * m[4] - m[1] * m[3]) / determinant;
        if (latency >= 0 && inverse >= 0) {
            return std::max(m[5] - latency * m[3] - inverse * m[4], 0.0);
        }
    }
    const double by_latency = m[0] > 0 ? m[3] * m[3] / m[0] : 0;
    const double by_inverse = m[2] > 0 ? m[4] * m[4] / m[2] : 0;
    return std::max(m[5] - std::max(by_latency, by_inverse), 0.0);
}

// cost[first][last]: chi squared of one segment for the sizes from first to last, with a known
// common unknown.
std::vector<std::vector<double>> segment_costs(const Problem& problem, double common_us) {
    const std::size_t sizes = problem.sizes.size();
    std::vector<Moments> of_size(sizes, Moments::Zero());
    for (const Equation& e : problem.equations) {
        const double us = std::max(e.us - problem.count_of_common(e) * common_us, 0.0) / e.sigma_us;
        const double steps = e.steps / e.sigma_us;
        const double wire = e.wire_megabytes / e.sigma_us;
        of_size[e.size_index] +=
            Moments{{steps * steps, steps * wire, wire * wire, steps * us, wire * us, us * us}};
    }
    std::vector<std::vector<double>> costs(sizes, std::vector<double>(sizes, 0.0));
    for (std::size_t first = 0; first < sizes; ++first) {
        Moments sum = Moments::Zero();
        for (std::size_t last = first; last < sizes; ++last) {
            sum += of_size[last];
            costs[first][last] = chi_squared_of(sum);
        }
    }
    return costs;
}

// Segments need the common unknown, and the common unknown needs segments.
Regression fit_problem(const Problem& problem) {
    Regression fit;
    constexpr int most_rounds = 4;
    const int rounds = problem.common == Common::nothing ? 1 : most_rounds;
    double common_us = 0;
    for (int round = 0; round < rounds; ++round) {
        fit = regress(
            problem, choose_segmentation(segment_costs(problem, common_us), problem.points.size()));
        common_us = fit.common_us();
    }
    return fit;
}

// --- outliers ---

Problem without(const Problem& problem, std::size_t left_out) {
    std::vector<LinkPoint> points = problem.points;
    points.erase(points.begin() + static_cast<std::ptrdiff_t>(left_out));
    return problem_of(problem.model, problem.common, std::move(points));
}

double fitted_us(const Problem& problem, const Equation& e, const Regression& regression) {
    const Index column = regression.column(segment_of(regression.ends, e.size_index));
    return problem.count_of_common(e) * regression.common_us() +
           e.steps * regression.solution.x[column] +
           e.wire_megabytes * regression.solution.x[column + 1];
}

// The point without which the others agree by far better, if there is one. A change of segments
// looks different: several neighbours are off.
std::optional<std::size_t> find_outlier(const Problem& problem) {
    constexpr std::size_t fewest_points = 8;
    constexpr double left_over = 0.2;  // of chi squared
    constexpr double far = 0.15;       // of the point's time
    const std::size_t count = problem.points.size();
    if (count < fewest_points || problem.sizes.size() < fewest_points - 1) {
        return std::nullopt;
    }
    const Regression all = fit_problem(problem);
    if (all.chi_squared() < 2 * static_cast<double>(count)) {
        return std::nullopt;
    }
    // Where very many points are off, the worst few: an outlier is most of chi squared, and a fit
    // to 4,000 sizes takes half a second.
    constexpr std::size_t most_tried = 64;
    constexpr std::size_t worst = 4;
    const auto off_us = [&](std::size_t i) {
        const Equation& e = problem.equations[i];
        return std::abs(fitted_us(problem, e, all) - e.us);
    };
    std::vector<std::size_t> tried(count);
    std::iota(tried.begin(), tried.end(), std::size_t{0});
    std::erase_if(tried,
                  [&](std::size_t i) { return off_us(i) / problem.points[i].median_us < far / 2; });
    if (tried.size() > most_tried) {
        std::ranges::sort(tried, std::greater<>{},
                          [&](std::size_t i) { return off_us(i) / problem.equations[i].sigma_us; });
        tried.resize(worst);
        std::ranges::sort(tried);
    }
    std::optional<std::size_t> outlier;
    double least = left_over * all.chi_squared();
    for (const std::size_t i : tried) {
        const double chi_squared = fit_problem(without(problem, i)).chi_squared();
        if (chi_squared < least) {
            least = chi_squared;
            outlier = i;
        }
    }
    return outlier;
}

// --- the result ---

double to_gb_per_s(double us_per_megabyte) {
    // 1 MB per us is 1000 GB/s.
    return us_per_megabyte > 0 ? std::min(1e3 / us_per_megabyte, largest_gb_per_s)
                               : largest_gb_per_s;
}

// Errors are scaled up where the points lie further off than they should.
double error_scale(const Regression& regression, std::size_t points) {
    const double freedom =
        static_cast<double>(points) - static_cast<double>(regression.solution.x.size());
    return freedom > 0 ? std::max(regression.chi_squared() / freedom, 1.0) : 1.0;
}

Segment segment_from(const Regression& regression, std::size_t index, double scale) {
    const Index column = regression.column(index);
    const double inverse = regression.solution.x[column + 1];
    const double gb_per_s = to_gb_per_s(inverse);
    const double latency_error = regression.error(column, scale);
    const double inverse_error = regression.error(column + 1, scale);
    constexpr double largest_us = 1e6;  // the limit of link files
    SegmentErrors errors{.latency_us = std::min(latency_error, largest_us)};
    if (inverse > 0) {
        // d(1/b) = db / b²; a larger inverse is a smaller bandwidth.
        errors.bandwidth_gb_per_s = std::min(gb_per_s * inverse_error / inverse, largest_gb_per_s);
        const double product = latency_error * inverse_error;
        errors.correlation =
            product > 0
                ? std::clamp(-scale * regression.solution.covariance(column, column + 1) / product,
                             -1.0, 1.0)
                : 0;
    }
    Segment segment;
    segment.latency = duration_from_us(regression.solution.x[column]);
    segment.bandwidth = bandwidth_from_gb_per_s(gb_per_s);
    segment.errors = errors;
    return segment;
}

// Two segments meet where their lines cross, if that is between the last size of one and the first
// of the other; else in the geometric middle.
Bytes boundary(const Segment& low, const Segment& high, Bytes last, Bytes first,
               const WireCost& cost) {
    const auto line = [&](const Segment& s) {
        return std::pair(static_cast<double>(cost.steps) * to_us(s.latency),
                         wire_share(cost) * 1e6 / static_cast<double>(s.bandwidth.count));
    };
    const auto [low_us, low_slope] = line(low);
    const auto [high_us, high_slope] = line(high);
    const double crossing =
        low_slope != high_slope ? (high_us - low_us) / (low_slope - high_slope) : 0;
    const auto a = static_cast<double>(last.count);
    const auto b = static_cast<double>(first.count);
    const double middle = crossing > a && crossing < b ? crossing : std::sqrt(a * b);
    return {std::clamp(std::llround(middle), static_cast<long long>(last.count),
                       static_cast<long long>(first.count - 1))};
}

std::vector<Segment> segments_from(const Regression& fit, const Problem& problem, double scale) {
    const std::vector<Bytes>& sizes = problem.sizes;
    const LinkPoint& first = problem.points.front();
    const WireCost cost = wire_cost(first.kind, problem.model.algorithm, first.ranks);
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < fit.ends.size(); ++i) {
        segments.push_back(segment_from(fit, i, scale));
        if (i > 0) {
            const std::size_t end = fit.ends[i - 1];
            segments[i - 1].up_to =
                boundary(segments[i - 1], segments[i], sizes[end - 1], sizes[end], cost);
        }
    }
    return segments;
}

LinkResidual residual_of(const LinkFit& fit, const LinkModel& model, const LinkPoint& point,
                         bool dropped) {
    LinkParameters link;
    link.algorithm = model.algorithm;
    link.processors = model.processors;
    link.segments = fit.segments;
    link.launch = fit.launch;
    link.message = model.message.value_or(fit.message);
    LinkResidual residual{.point = point, .dropped = dropped};
    residual.fitted_us =
        to_us(collective_time(point.kind, point.size, {point.ranks, point.ranks}, link));
    const Segment& serving = segment_for(CollectiveKind::all_reduce, link, point.size);
    residual.segment = static_cast<std::size_t>(&serving - link.segments.data());
    return residual;
}

void warn(LinkFit& fit, const std::vector<Bytes>& sizes) {
    constexpr std::size_t few_sizes = 4;
    constexpr std::int64_t narrow = 16;
    if (sizes.size() < few_sizes) {
        fit.weaknesses.push_back(fmt::format(
            "only {} different sizes: latency and bandwidth are uncertain; measure at least {}",
            sizes.size(), few_sizes));
    }
    if (sizes.back().count < narrow * sizes.front().count) {
        fit.weaknesses.push_back(
            fmt::format("sizes from {} to {} bytes only: everything else is an extrapolation",
                        sizes.front().count, sizes.back().count));
    }
    fit.warnings = fit.weaknesses;
    for (const Segment& segment : fit.segments) {
        if (segment.bandwidth >= bandwidth_from_gb_per_s(largest_gb_per_s)) {
            fit.warnings.push_back(fmt::format(
                "the time of messages{} does not grow with their size: their bandwidth is unknown",
                segment.up_to ? fmt::format(" up to {} bytes", segment.up_to->count) : ""));
        }
    }
    for (const LinkResidual& residual : fit.residuals) {
        if (residual.dropped) {
            fit.warnings.push_back(fmt::format(
                "left out {} bytes on {} ranks, an outlier: measured {:.1f} us, all others say "
                "{:.1f} us",
                residual.point.size.count, residual.point.ranks, residual.point.median_us,
                residual.fitted_us));
        }
    }
}

void check(const Problem& problem, const std::string& file) {
    for (const LinkPoint& point : problem.points) {
        invariant(point.median_us > 0 && point.ranks > 1 && point.size.count > 0,
                  "a point of a link has a size, a time and more than one rank");
    }
    const std::size_t sizes = problem.sizes.size();
    const std::string_view kind =
        name_of(sizes == 0 ? CollectiveKind::all_reduce : problem.points.front().kind);
    constexpr std::size_t most_sizes = 4096;  // a fit then takes some seconds
    if (sizes > most_sizes) {
        throw InputError(file, "", fmt::format("{}s of at most {} sizes", kind, most_sizes),
                         fmt::format("{}", sizes));
    }
    if (sizes < 2) {
        throw InputError(
            file, "",
            fmt::format("{}s of at least two sizes to separate latency from bandwidth", kind),
            sizes == 0 ? "none" : "one size");
    }
}

}  // namespace

std::optional<Caveat> residual_caveat(double typical, std::string_view what) {
    constexpr double noticeable = 0.05;
    constexpr double poor = 0.2;  // more than the difference between caps that matter
    if (typical < noticeable) {
        return std::nullopt;
    }
    return Caveat{.text = fmt::format("it is typically {:.0f} % off the {} that it was fitted to",
                                      100 * typical, what),
                  .withholds = typical >= poor};
}

LinkFit fit_link(Algorithm algorithm, std::vector<LinkPoint> points, const std::string& file,
                 std::optional<std::int64_t> processors, std::optional<Duration> message) {
    std::ranges::sort(points, {}, [](const LinkPoint& p) { return std::tuple(p.ranks, p.size); });
    const LinkModel model{algorithm, processors, message};
    Problem problem =
        problem_of(model, points.empty() ? Common::nothing : common_of(model, points), points);
    check(problem, file);
    std::vector<LinkPoint> dropped;
    const std::size_t most_dropped = points.size() / 10 + (points.size() >= 8 ? 1 : 0);
    while (dropped.size() < most_dropped) {
        const auto outlier = find_outlier(problem);
        if (!outlier) {
            break;
        }
        dropped.push_back(problem.points[*outlier]);
        problem = without(problem, *outlier);
    }
    const Regression regression = fit_problem(problem);
    const double scale = error_scale(regression, problem.points.size());
    LinkFit fit;
    fit.segments = segments_from(regression, problem, scale);
    if (problem.common != Common::nothing) {
        const bool launches = problem.common == Common::launch;
        (launches ? fit.launch : fit.message) = duration_from_us(regression.common_us());
        (launches ? fit.launch_standard_error_us : fit.message_standard_error_us) =
            regression.error(0, scale);
    }
    for (const LinkPoint& point : points) {
        fit.residuals.push_back(
            residual_of(fit, model, point, std::ranges::count(dropped, point) > 0));
    }
    warn(fit, problem.sizes);
    return fit;
}

}  // namespace bucketwise
