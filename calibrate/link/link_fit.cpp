#include "calibrate/link/link_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include <fmt/format.h>
#include <Eigen/Core>

#include "calibrate/link/non_negative_least_squares.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

using Eigen::Index;

constexpr std::size_t most_segments = 6;
constexpr std::size_t fewest_sizes_per_segment = 3;
constexpr double model_error = 0.01;  // a straight line is no better than that
constexpr double largest_gb_per_s = 1e6;

// What is fitted.
struct LinkModel {
    Algorithm algorithm = Algorithm::ring;
    std::optional<std::int64_t> processors = {};
    std::optional<Duration> message = {};  // none: fitted

    // How much longer everything but a launch takes where ranks take turns on processors.
    [[nodiscard]] double turns(std::int64_t ranks) const {
        return processors
                   ? std::max(static_cast<double>(ranks) / static_cast<double>(*processors), 1.0)
                   : 1.0;
    }
};

// What all segments have in common.
enum class Common : std::uint8_t {
    nothing,
    launch,  // differs from latency in what it does as steps become more
    message  // where steps do not, but messages do
};

// A point as the regression sees it:
//     time = (1 or messages) common + steps latency + megabytes / rate
struct Observation {
    LinkPoint point;
    double us = 0;  // without what is known of its messages
    double steps = 0;
    double messages = 0;
    double wire_megabytes = 0;
    double sigma_us = 0;
    std::size_t size_index = 0;  // among the distinct sizes
};

// Rising.
std::vector<Bytes> distinct_sizes(const std::vector<LinkPoint>& points) {
    std::vector<Bytes> sizes = transformed(points, &LinkPoint::size);
    std::ranges::sort(sizes);
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
}

std::vector<Observation> observations_of(const LinkModel& model,
                                         const std::vector<LinkPoint>& points) {
    const std::vector<Bytes> sizes = distinct_sizes(points);
    std::vector<Observation> observations;
    for (const LinkPoint& point : points) {
        const WireCost cost = wire_cost(point.kind, model.algorithm, point.ranks);
        const double turns = model.turns(point.ranks);
        const double share =
            static_cast<double>(cost.wire.numerator) / static_cast<double>(cost.wire.denominator);
        const double messages = turns * static_cast<double>(cost.messages);
        observations.push_back(
            {.point = point,
             .us = std::max(point.median_us - messages * to_us(model.message.value_or(Duration{0})),
                            model_error * point.median_us),
             .steps = turns * static_cast<double>(cost.steps),
             .messages = messages,
             .wire_megabytes = turns * share * static_cast<double>(point.size.count) / 1e6,
             .sigma_us = std::max(point.standard_error_us, model_error * point.median_us),
             .size_index =
                 static_cast<std::size_t>(std::ranges::find(sizes, point.size) - sizes.begin())});
    }
    return observations;
}

// Of kinds apart: that one takes twice the steps of another tells nothing of what launching takes.
Common common_of(const LinkModel& model, const std::vector<LinkPoint>& points) {
    const auto varies = [&](std::int64_t WireCost::*count) {
        const auto of = [&](const LinkPoint& point) {
            return wire_cost(points.front().kind, model.algorithm, point.ranks).*count;
        };
        return std::any_of(points.begin(), points.end(),
                           [&](const LinkPoint& point) { return of(point) != of(points.front()); });
    };
    return varies(&WireCost::steps)                        ? Common::launch
           : varies(&WireCost::messages) && !model.message ? Common::message
                                                           : Common::nothing;
}

double count_of(Common common, const Observation& observation) {
    return common == Common::message ? observation.messages : 1.0;
}

// Ends of segments: each segment serves the distinct sizes from the end of the one before.
using Segmentation = std::vector<std::size_t>;

std::size_t segment_of(const Segmentation& ends, std::size_t size_index) {
    return static_cast<std::size_t>(
        std::distance(ends.begin(), std::upper_bound(ends.begin(), ends.end(), size_index)));
}

struct Regression {
    Segmentation ends = {};
    NonNegativeSolution solution = {};  // what is common, then latency and 1 / rate by segment
    Common common = Common::nothing;

    [[nodiscard]] double chi_squared() const { return solution.residual_sum; }
    [[nodiscard]] Index column(std::size_t segment) const {
        return (common != Common::nothing ? 1 : 0) + 2 * static_cast<Index>(segment);
    }
    [[nodiscard]] double common_us() const { return common != Common::nothing ? solution.x[0] : 0; }
    // The standard error of an unknown. `scale`: how much too large the squared errors of the
    // points turned out to be.
    [[nodiscard]] double error(Index unknown, double scale) const {
        return std::sqrt(std::max(scale * solution.covariance(unknown, unknown), 0.0));
    }
};

Regression regress(const std::vector<Observation>& observations, const Segmentation& ends,
                   Common common) {
    Regression regression{.ends = ends, .common = common};
    const auto rows = static_cast<Index>(observations.size());
    const Index columns = regression.column(ends.size());
    Eigen::MatrixXd a = Eigen::MatrixXd::Zero(rows, columns);
    Eigen::VectorXd b(rows);
    for (Index row = 0; row < rows; ++row) {
        const Observation& o = observations[static_cast<std::size_t>(row)];
        const Index column = regression.column(segment_of(ends, o.size_index));
        if (common != Common::nothing) {
            a(row, 0) = count_of(common, o) / o.sigma_us;
        }
        a(row, column) = o.steps / o.sigma_us;
        a(row, column + 1) = o.wire_megabytes / o.sigma_us;
        b[row] = o.us / o.sigma_us;
    }
    regression.solution = solve_non_negative(a, b);
    return regression;
}

std::size_t count_sizes(const std::vector<Observation>& observations) {
    return std::ranges::max(observations, {}, &Observation::size_index).size_index + 1;
}

// Sums over points, each divided by its variance, of what two unknowns are fitted by.
struct Moments {
    double steps2 = 0;
    double steps_wire = 0;
    double wire2 = 0;
    double steps_us = 0;
    double wire_us = 0;
    double us2 = 0;

    Moments& operator+=(const Moments& other) {
        steps2 += other.steps2;
        steps_wire += other.steps_wire;
        wire2 += other.wire2;
        steps_us += other.steps_us;
        wire_us += other.wire_us;
        us2 += other.us2;
        return *this;
    }

    // Of the best latency and the best inverse rate, neither below 0.
    [[nodiscard]] double chi_squared() const {
        const double determinant = steps2 * wire2 - steps_wire * steps_wire;
        if (determinant > 1e-12 * steps2 * wire2) {
            const double latency = (wire2 * steps_us - steps_wire * wire_us) / determinant;
            const double inverse = (steps2 * wire_us - steps_wire * steps_us) / determinant;
            if (latency >= 0 && inverse >= 0) {
                return std::max(us2 - latency * steps_us - inverse * wire_us, 0.0);
            }
        }
        const double by_latency = steps2 > 0 ? steps_us * steps_us / steps2 : 0;
        const double by_inverse = wire2 > 0 ? wire_us * wire_us / wire2 : 0;
        return std::max(us2 - std::max(by_latency, by_inverse), 0.0);
    }
};

// cost[first][last]: chi squared of one segment for the sizes from first to last, what is common
// known.
std::vector<std::vector<double>> segment_costs(const std::vector<Observation>& observations,
                                               Common common, double common_us) {
    const std::size_t sizes = count_sizes(observations);
    std::vector<Moments> of_size(sizes);
    for (const Observation& o : observations) {
        const double us = std::max(o.us - count_of(common, o) * common_us, 0.0) / o.sigma_us;
        const double steps = o.steps / o.sigma_us;
        const double wire = o.wire_megabytes / o.sigma_us;
        of_size[o.size_index] +=
            {steps * steps, steps * wire, wire * wire, steps * us, wire * us, us * us};
    }
    std::vector<std::vector<double>> costs(sizes, std::vector<double>(sizes, 0.0));
    for (std::size_t first = 0; first < sizes; ++first) {
        Moments sum;
        for (std::size_t last = first; last < sizes; ++last) {
            sum += of_size[last];
            costs[first][last] = sum.chi_squared();
        }
    }
    return costs;
}

// The best segmentation into exactly `count` segments.
Segmentation best_segmentation(const std::vector<std::vector<double>>& costs, std::size_t count,
                               std::size_t fewest_sizes) {
    const std::size_t sizes = costs.size();
    constexpr double impossible = std::numeric_limits<double>::infinity();
    // best[k][n]: the first n sizes in k segments; from[k][n]: where the last of them begins.
    std::vector best(count + 1, std::vector<double>(sizes + 1, impossible));
    std::vector from(count + 1, std::vector<std::size_t>(sizes + 1, 0));
    best[0][0] = 0;
    for (std::size_t k = 1; k <= count; ++k) {
        for (std::size_t n = fewest_sizes; n <= sizes; ++n) {
            for (std::size_t begin = 0; begin + fewest_sizes <= n; ++begin) {
                const double cost = best[k - 1][begin] + costs[begin][n - 1];
                if (cost < best[k][n]) {
                    best[k][n] = cost;
                    from[k][n] = begin;
                }
            }
        }
    }
    Segmentation ends;
    std::size_t n = sizes;
    for (std::size_t k = count; k > 0; --k) {
        ends.push_back(n);
        n = from[k][n];
    }
    std::reverse(ends.begin(), ends.end());
    return ends;
}

// Errors are known up to a factor of at least 1, so a fit that is already as good as the errors
// gains nothing by more segments.
double information_criterion(double chi_squared, std::size_t points, std::size_t segments) {
    const auto n = static_cast<double>(points);
    const auto parameters = static_cast<double>(3 * segments - 1);
    return n * std::log(std::max(chi_squared / n, 1.0)) + parameters * std::log(n);
}

Segmentation choose_segmentation(const std::vector<Observation>& observations, Common common,
                                 double common_us) {
    const std::size_t sizes = count_sizes(observations);
    const std::size_t fewest_sizes = std::min(fewest_sizes_per_segment, sizes);
    const std::vector<std::vector<double>> costs = segment_costs(observations, common, common_us);
    const std::size_t most = std::clamp<std::size_t>(sizes / fewest_sizes, 1, most_segments);
    Segmentation chosen;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t count = 1; count <= most; ++count) {
        const Segmentation ends = best_segmentation(costs, count, fewest_sizes);
        double chi_squared = 0;
        std::size_t begin = 0;
        for (const std::size_t end : ends) {
            chi_squared += costs[begin][end - 1];
            begin = end;
        }
        const double criterion = information_criterion(chi_squared, observations.size(), count);
        if (criterion < least) {
            least = criterion;
            chosen = ends;
        }
    }
    return chosen;
}

Regression fit_observations(const std::vector<Observation>& observations, Common common) {
    Regression fit;
    // Segments need what is common and what is common needs segments.
    constexpr int most_rounds = 4;
    const int rounds = common == Common::nothing ? 1 : most_rounds;
    double common_us = 0;
    for (int round = 0; round < rounds; ++round) {
        fit = regress(observations, choose_segmentation(observations, common, common_us), common);
        common_us = fit.common_us();
    }
    return fit;
}

// --- outliers ---

// Renumbers the distinct sizes of what is left.
std::vector<Observation> without(const std::vector<Observation>& observations, std::size_t left_out,
                                 const LinkModel& model) {
    std::vector<LinkPoint> points = transformed(observations, &Observation::point);
    points.erase(points.begin() + static_cast<std::ptrdiff_t>(left_out));
    return observations_of(model, points);
}

double fitted_us(const Observation& o, const Regression& regression) {
    const Index column = regression.column(segment_of(regression.ends, o.size_index));
    return count_of(regression.common, o) * regression.common_us() +
           o.steps * regression.solution.x[column] +
           o.wire_megabytes * regression.solution.x[column + 1];
}

// The point without which the others agree by far better, if there is one. A change of segments
// looks different: several neighbours are off.
std::optional<std::size_t> find_outlier(const std::vector<Observation>& observations,
                                        const LinkModel& model, Common common) {
    constexpr std::size_t fewest_points = 8;
    constexpr double left_over = 0.2;  // of chi squared
    constexpr double far = 0.15;       // of the point's time
    if (observations.size() < fewest_points || count_sizes(observations) < fewest_points - 1) {
        return std::nullopt;
    }
    const Regression all = fit_observations(observations, common);
    const auto count = static_cast<double>(observations.size());
    if (all.chi_squared() < 2 * count) {
        return std::nullopt;
    }
    // Where very many points are off, the worst few: an outlier is most of chi squared, and a fit
    // to 4,000 sizes takes half a second.
    constexpr std::size_t most_tried = 64;
    constexpr std::size_t worst = 4;
    const auto off = [&](std::size_t i) {
        return std::abs(fitted_us(observations[i], all) - observations[i].us) /
               observations[i].point.median_us;
    };
    std::vector<std::size_t> tried(observations.size());
    std::iota(tried.begin(), tried.end(), std::size_t{0});
    std::erase_if(tried, [&](std::size_t i) { return off(i) < far / 2; });
    if (tried.size() > most_tried) {
        std::ranges::sort(tried, std::greater<>{}, [&](std::size_t i) {
            return off(i) * observations[i].point.median_us / observations[i].sigma_us;
        });
        tried.resize(worst);
        std::ranges::sort(tried);
    }
    std::optional<std::size_t> outlier;
    double least = left_over * all.chi_squared();
    for (const std::size_t i : tried) {
        const std::vector<Observation> others = without(observations, i, model);
        const double chi_squared = fit_observations(others, common).chi_squared();
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
    const auto& x = regression.solution.x;
    Segment segment;
    segment.latency = duration_from_us(x[column]);
    const double gb_per_s = to_gb_per_s(x[column + 1]);
    segment.bandwidth = bandwidth_from_gb_per_s(gb_per_s);
    const double latency_error = regression.error(column, scale);
    const double inverse_error = regression.error(column + 1, scale);
    SegmentErrors errors;
    constexpr double largest_us = 1e6;  // as a link file may have it
    errors.latency_us = std::min(latency_error, largest_us);
    if (x[column + 1] > 0) {
        // d(1/b) = db / b²; a larger inverse is a smaller bandwidth.
        errors.bandwidth_gb_per_s =
            std::min(gb_per_s * inverse_error / x[column + 1], largest_gb_per_s);
        const double product = latency_error * inverse_error;
        errors.correlation =
            product > 0
                ? std::clamp(-scale * regression.solution.covariance(column, column + 1) / product,
                             -1.0, 1.0)
                : 0;
    }
    segment.errors = errors;
    return segment;
}

// Where two segments meet: where their lines cross, if that is between the last size of one and the
// first of the other; else in the geometric middle.
Bytes boundary(const Segment& low, const Segment& high, Bytes last, Bytes first,
               const WireCost& cost) {
    const double share =
        static_cast<double>(cost.wire.numerator) / static_cast<double>(cost.wire.denominator);
    const auto line = [&](const Segment& s) {
        return std::pair(static_cast<double>(cost.steps) * to_us(s.latency),
                         share * 1e6 / static_cast<double>(s.bandwidth.count));
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

std::vector<Segment> segments_from(const Regression& fit,
                                   const std::vector<Observation>& observations,
                                   Algorithm algorithm) {
    const double scale = error_scale(fit, observations.size());
    const std::vector<Bytes> sizes = distinct_sizes(transformed(observations, &Observation::point));
    const LinkPoint& first = observations.front().point;
    const WireCost cost = wire_cost(first.kind, algorithm, first.ranks);
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

void warn(LinkFit& fit, const std::vector<Observation>& observations) {
    const std::vector<Bytes> sizes = distinct_sizes(transformed(observations, &Observation::point));
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

void check_points(const std::vector<LinkPoint>& points, const std::string& file) {
    for (const LinkPoint& point : points) {
        invariant(point.median_us > 0 && point.ranks > 1 && point.size.count > 0,
                  "a point of a link has a size, a time and more than one rank");
    }
    const std::vector<Bytes> sizes = distinct_sizes(points);
    const std::string_view what =
        name_of(points.empty() ? CollectiveKind::all_reduce : points.front().kind);
    constexpr std::size_t most_sizes = 4096;  // a fit then takes some seconds
    if (sizes.size() > most_sizes) {
        throw InputError(file, "", fmt::format("{}s of at most {} sizes", what, most_sizes),
                         fmt::format("{}", sizes.size()));
    }
    if (sizes.size() < 2) {
        throw InputError(
            file, "", fmt::format("{}s of at least two sizes to tell latency from bandwidth", what),
            fmt::format("{}", sizes.empty() ? "none" : "one size"));
    }
}

void set_common(LinkFit& fit, const Regression& regression, std::size_t points) {
    if (regression.common == Common::nothing) {
        return;
    }
    const double error = regression.error(0, error_scale(regression, points));
    const Duration time = duration_from_us(regression.common_us());
    if (regression.common == Common::launch) {
        fit.launch = time;
        fit.launch_standard_error_us = error;
    } else {
        fit.message = time;
        fit.message_standard_error_us = error;
    }
}

}  // namespace

std::optional<Caveat> residual_caveat(double typical, std::string_view what) {
    constexpr double noticeable = 0.05;
    constexpr double poor = 0.2;  // more than caps that matter differ by
    if (typical < noticeable) {
        return std::nullopt;
    }
    return Caveat{.text = fmt::format("it is typically {:.0f} % off the {} that it was fitted to",
                                      100 * typical, what),
                  .withholds = typical >= poor};
}

LinkFit fit_link(Algorithm algorithm, std::vector<LinkPoint> points, const std::string& file,
                 std::optional<std::int64_t> processors, std::optional<Duration> message) {
    const LinkModel model{algorithm, processors, message};
    check_points(points, file);
    std::ranges::sort(points, {}, [](const LinkPoint& p) { return std::tuple(p.ranks, p.size); });
    std::vector<Observation> observations = observations_of(model, points);
    const Common common = common_of(model, points);
    std::vector<LinkPoint> dropped;
    const std::size_t most_dropped = points.size() / 10 + (points.size() >= 8 ? 1 : 0);
    while (dropped.size() < most_dropped) {
        const auto outlier = find_outlier(observations, model, common);
        if (!outlier) {
            break;
        }
        dropped.push_back(observations[*outlier].point);
        observations = without(observations, *outlier, model);
    }
    const Regression regression = fit_observations(observations, common);
    LinkFit fit;
    fit.segments = segments_from(regression, observations, algorithm);
    set_common(fit, regression, observations.size());
    for (const LinkPoint& point : points) {
        const bool is_dropped = std::find(dropped.begin(), dropped.end(), point) != dropped.end();
        fit.residuals.push_back(residual_of(fit, model, point, is_dropped));
    }
    warn(fit, observations);
    return fit;
}

}  // namespace bucketwise
