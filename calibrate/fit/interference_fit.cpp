#include "calibrate/fit/interference_fit.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

constexpr double least_factor_error = 0.005;  // of a factor; rounds of one machine agree too well
constexpr double largest_slowdown = 100;
// Below this factor noise has mixed up products and the rest: nothing gets that much faster.
constexpr double least_believed_factor = 0.9;

double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

// Operations alone and disturbed, summed over all rounds and ranks.
struct Alone {
    double us = 0;
    double disturbed_us = 0;

    [[nodiscard]] std::optional<double> slowdown() const {
        return us > 0 ? std::optional(disturbed_us / us) : std::nullopt;
    }
};

using Records = std::vector<const ContentionRecord*>;

SlowdownsApart slowdowns_apart(const Records& records) {
    Alone products;
    Alone rest;
    for (const ContentionRecord* record : records) {
        const double products_us = sum(record->products_alone_us);
        const double products_disturbed_us = sum(record->products_disturbed_us);
        const double rest_us = sum(record->compute_alone_us) - products_us;
        constexpr double noticeable = 1e-9;  // sums of the same times differ by less
        products.us += products_us;
        products.disturbed_us += products_disturbed_us;
        if (!record->products_alone_us.empty() && rest_us > noticeable * products_us) {
            rest.us += rest_us;
            rest.disturbed_us += sum(record->compute_disturbed_us) - products_disturbed_us;
        }
    }
    const Alone together{products.us + rest.us, products.disturbed_us + rest.disturbed_us};
    return {products.slowdown(), rest.slowdown(), together.slowdown()};
}

MeasuredSlowdown slowdown_of(const std::vector<double>& factors) {
    return {median(factors), std::max(standard_error_of_median(factors), least_factor_error)};
}

// The point of the records of one size.
InterferencePoint point_of(std::optional<std::int64_t> ctas, Bytes size, const Records& records,
                           const TimeAlone& alone_us) {
    std::vector<double> compute;  // by round
    std::vector<double> communication;
    for (const ContentionRecord* record : records) {
        // All ranks together. Where no operation counted, there is nothing to compare.
        const double alone = sum(record->compute_alone_us);
        if (alone > 0) {
            compute.push_back(sum(record->compute_disturbed_us) / alone);
        }
        communication.push_back(mean(record->allreduce_disturbed_us) /
                                (alone_us ? alone_us(size) : mean(record->allreduce_alone_us)));
    }
    return {.ctas = ctas,
            .size = size,
            .compute = compute.empty() ? std::nullopt : std::optional(slowdown_of(compute)),
            .communication = slowdown_of(communication),
            .rounds = records.size(),
            .apart = slowdowns_apart(records)};
}

std::int64_t to_ppm(double slowdown) {
    return std::llround(1e6 * std::clamp(slowdown, 1.0, largest_slowdown));
}

InterferenceSegment segment_of(const MeasuredSlowdown& compute,
                               const MeasuredSlowdown& communication, const SlowdownsApart& apart) {
    InterferenceSegment segment{
        .slowdown = {to_ppm(compute.factor), to_ppm(communication.factor)},
        .errors = InterferenceErrors{std::min(compute.error, largest_slowdown),
                                     std::min(communication.error, largest_slowdown)}};
    if (apart.products && apart.rest && apart.together > 0.0) {
        const double scale = compute.factor / *apart.together;
        const double products = scale * *apart.products;
        const double rest = scale * *apart.rest;
        if (std::min(products, rest) >= least_believed_factor) {
            segment.computing = {to_ppm(products), to_ppm(rest)};
        }
    }
    return segment;
}

// Weighted by the errors; `chi_squared` is the scatter over the errors.
struct Mean {
    MeasuredSlowdown slowdown;
    double chi_squared = 0;
};

// Without any slowdowns: 1, without error.
Mean weighted_mean(const std::vector<MeasuredSlowdown>& slowdowns) {
    if (slowdowns.empty()) {
        return {};
    }
    double weights = 0;
    double weighted = 0;
    for (const MeasuredSlowdown& one : slowdowns) {
        const double weight = 1 / (one.error * one.error);
        weights += weight;
        weighted += weight * one.factor;
    }
    Mean mean{.slowdown = {weighted / weights, 1 / std::sqrt(weights)}};
    for (const MeasuredSlowdown& one : slowdowns) {
        const double off = (one.factor - mean.slowdown.factor) / one.error;
        mean.chi_squared += off * off;
    }
    const auto freedom = std::max<std::size_t>(slowdowns.size() - 1, 1);
    mean.slowdown.error *=
        std::sqrt(std::max(mean.chi_squared / static_cast<double>(freedom), 1.0));
    return mean;
}

MeasuredSlowdown between(const MeasuredSlowdown& a, const MeasuredSlowdown& b, double share) {
    return {std::lerp(a.factor, b.factor, share), std::lerp(a.error, b.error, share)};
}

// A factor that adds to `alone_us` of the size between what lies between what those of `a` and `b`
// add, linear in the size.
double added_between(const InterferencePoint& a, const InterferencePoint& b, Bytes size,
                     const TimeAlone& alone_us) {
    const auto added_us = [&](const InterferencePoint& point) {
        return (point.communication.factor - 1) * alone_us(point.size);
    };
    const double share =
        static_cast<double>((size - a.size).count) / static_cast<double>((b.size - a.size).count);
    return 1 + std::lerp(added_us(a), added_us(b), share) / alone_us(size);
}

// The point of a size between two measured ones. Precondition: `a` and `b` hold the same numbers.
InterferencePoint between(const InterferencePoint& a, const InterferencePoint& b, double share,
                          const TimeAlone& alone_us) {
    const auto both = [&](const std::optional<double>& low, const std::optional<double>& high) {
        return low && high ? std::optional(std::lerp(*low, *high, share)) : std::nullopt;
    };
    const double ratio = static_cast<double>(b.size.count) / static_cast<double>(a.size.count);
    const Bytes size{std::llround(static_cast<double>(a.size.count) * std::pow(ratio, share))};
    MeasuredSlowdown communication = between(a.communication, b.communication, share);
    if (alone_us) {
        communication.factor = added_between(a, b, size, alone_us);
    }
    return {.ctas = a.ctas,
            .size = size,
            .compute = between(*a.compute, *b.compute, share),
            .communication = communication,
            .apart = {both(a.apart.products, b.apart.products), both(a.apart.rest, b.apart.rest),
                      both(a.apart.together, b.apart.together)}};
}

// With points between, so that neighbours' sizes differ by a factor of about two at most.
std::vector<InterferencePoint> by_octave(const std::vector<InterferencePoint>& points,
                                         const TimeAlone& alone_us) {
    std::vector<InterferencePoint> all = {points.front()};
    for (std::size_t i = 1; i < points.size(); ++i) {
        const InterferencePoint& low = points[i - 1];
        const InterferencePoint& high = points[i];
        const double octaves =
            std::log2(static_cast<double>(high.size.count) / static_cast<double>(low.size.count));
        const double steps = std::max(std::round(octaves), 1.0);
        for (double step = 1; step < steps; ++step) {
            all.push_back(between(low, high, step / steps, alone_us));
        }
        all.push_back(high);
    }
    return all;
}

// `compute` and `apart`: of all sizes, for sizes that no operation was short enough for.
std::vector<InterferenceSegment> segments_by_size(std::vector<InterferencePoint> points,
                                                  const MeasuredSlowdown& compute,
                                                  const SlowdownsApart& apart,
                                                  const TimeAlone& alone_us) {
    for (InterferencePoint& point : points) {
        point.apart = point.compute ? point.apart : apart;
        point.compute = point.compute.value_or(compute);
    }
    points = by_octave(points, alone_us);
    std::vector<InterferenceSegment> segments;
    for (std::size_t i = 0; i < points.size(); ++i) {
        const InterferencePoint& point = points[i];
        segments.push_back(segment_of(*point.compute, point.communication, point.apart));
        if (i + 1 < points.size()) {
            const double middle = std::sqrt(static_cast<double>(point.size.count) *
                                            static_cast<double>(points[i + 1].size.count));
            segments.back().up_to = Bytes{std::llround(middle)};
        }
    }
    return segments;
}

std::vector<InterferencePoint> points_of(std::optional<std::int64_t> ctas, const Records& records,
                                         const TimeAlone& alone_us) {
    std::map<Bytes, Records> by_size;
    for (const ContentionRecord* record : records) {
        by_size[record->size].push_back(record);
    }
    std::vector<InterferencePoint> points;
    for (const auto& [size, of_size] : by_size) {
        points.push_back(point_of(ctas, size, of_size, alone_us));
    }
    return points;
}

// The segments of points with one number of thread blocks; `apart`: of their records together.
std::vector<InterferenceSegment> segments_of(const std::vector<InterferencePoint>& points,
                                             const SlowdownsApart& apart, std::size_t most_segments,
                                             const TimeAlone& alone_us) {
    std::vector<MeasuredSlowdown> of_compute;
    std::vector<MeasuredSlowdown> of_communication;
    for (const InterferencePoint& point : points) {
        if (point.compute) {
            of_compute.push_back(*point.compute);
        }
        of_communication.push_back(point.communication);
    }
    const Mean compute = weighted_mean(of_compute);
    const Mean communication = weighted_mean(of_communication);
    // Two factors are free in the one case, two per size in the other, which then fits exactly.
    const auto n = static_cast<double>(points.size());
    const double gain = communication.chi_squared + compute.chi_squared;
    const bool size_matters = gain > 2 * (n - 1) * std::log(2 * n);
    std::vector<InterferenceSegment> segments;
    if (size_matters) {
        segments = segments_by_size(points, compute.slowdown, apart, alone_us);
    }
    if (!size_matters || segments.size() > most_segments) {
        segments = {segment_of(compute.slowdown, communication.slowdown, apart)};
    }
    for (InterferenceSegment& segment : segments) {
        segment.ctas = points.front().ctas;
    }
    return segments;
}

}  // namespace

InterferenceFit fit_interference(const std::vector<ContentionRecord>& records,
                                 std::optional<std::int64_t> ctas, const TimeAlone& alone_us) {
    std::map<std::optional<std::int64_t>, Records> by_ctas;  // none first
    for (const ContentionRecord& record : records) {
        by_ctas[record.transport.ctas].push_back(&record);
    }
    InterferenceFit fit;
    const bool only_some = by_ctas.size() > 1 && by_ctas.begin()->first == std::nullopt;
    if (only_some) {
        fit.warnings.emplace_back(
            ctas ? "contention was measured with a number of CTAs and without; only the former, as "
                   "in the steps, is used"
                 : "contention was measured with a number of CTAs and without; only the latter, as "
                   "in the steps, is used");
        by_ctas.erase(ctas ? by_ctas.begin() : std::next(by_ctas.begin()),
                      ctas ? std::next(by_ctas.begin()) : by_ctas.end());
    }
    constexpr std::size_t most_by_size = 128;
    const std::size_t most = std::min(
        most_by_size, most_interference_segments / std::max<std::size_t>(by_ctas.size(), 1));
    for (const auto& [number, of_number] : by_ctas) {
        const std::vector<InterferencePoint> points = points_of(number, of_number, alone_us);
        const std::vector<InterferenceSegment> segments =
            segments_of(points, slowdowns_apart(of_number), most, alone_us);
        if (std::ranges::none_of(points, [](const auto& p) { return p.compute.has_value(); })) {
            fit.warnings.push_back(fmt::format(
                "no operation of backward ran wholly while all-reduces{} did, launched ahead: they "
                "are assumed not to slow computing",
                number ? fmt::format(" of {} CTAs", *number) : ""));
        }
        fit.points.insert(fit.points.end(), points.begin(), points.end());
        fit.segments.insert(fit.segments.end(), segments.begin(), segments.end());
    }
    if (!fit.segments.empty() && fit.segments.back().ctas) {
        fit.ctas = ctas ? ctas : fit.segments.back().ctas;
    }
    return fit;
}

}  // namespace bucketwise
