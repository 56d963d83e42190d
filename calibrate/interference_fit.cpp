#include "calibrate/interference_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "calibrate/statistics.h"

namespace bucketwise {
namespace {

constexpr double least_error = 0.005;  // of a factor; rounds of one machine agree too well
constexpr double largest_slowdown = 100;

double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

struct Factors {
    std::vector<double> compute;  // by round
    std::vector<double> communication;
};

std::map<Bytes, Factors> factors_by_size(const std::vector<ContentionRecord>& records) {
    std::map<Bytes, Factors> by_size;
    for (const ContentionRecord& record : records) {
        Factors& factors = by_size[record.size];
        // Of all ranks together. Where no operation fitted in, there is nothing to compare.
        const double alone = sum(record.compute_alone_us);
        if (alone > 0) {
            factors.compute.push_back(sum(record.compute_disturbed_us) / alone);
        }
        const double mean = sum(record.allreduce_disturbed_us) /
                            static_cast<double>(record.allreduce_disturbed_us.size());
        factors.communication.push_back(mean / median(record.allreduce_alone_us));
    }
    return by_size;
}

InterferencePoint point_of(Bytes size, const Factors& factors) {
    InterferencePoint point{.size = size};
    if (!factors.compute.empty()) {
        point.compute_slowdown = median(factors.compute);
        point.compute_error = std::max(standard_error_of_median(factors.compute), least_error);
    }
    point.communication_slowdown = median(factors.communication);
    point.communication_error =
        std::max(standard_error_of_median(factors.communication), least_error);
    point.rounds = factors.communication.size();
    return point;
}

std::int64_t to_ppm(double slowdown) {
    return std::llround(1e6 * std::clamp(slowdown, 1.0, largest_slowdown));
}

InterferenceSegment segment_of(double compute, double compute_error, double communication,
                               double communication_error) {
    return {.slowdown = {to_ppm(compute), to_ppm(communication)},
            .errors = InterferenceErrors{std::min(compute_error, largest_slowdown),
                                         std::min(communication_error, largest_slowdown)}};
}

// Weighted by the errors, which lie further apart than they should by `chi_squared`.
struct Mean {
    double value = 0;
    double error = 0;
    double chi_squared = 0;
};

template <typename Value, typename Error>
Mean weighted_mean(const std::vector<InterferencePoint>& points, Value value, Error error) {
    double weights = 0;
    double weighted = 0;
    for (const InterferencePoint& point : points) {
        const double weight = 1 / (error(point) * error(point));
        weights += weight;
        weighted += weight * value(point);
    }
    Mean mean{.value = weighted / weights, .error = 1 / std::sqrt(weights)};
    for (const InterferencePoint& point : points) {
        const double off = (value(point) - mean.value) / error(point);
        mean.chi_squared += off * off;
    }
    const auto freedom = std::max<std::size_t>(points.size() - 1, 1);
    mean.error *= std::sqrt(std::max(mean.chi_squared / static_cast<double>(freedom), 1.0));
    return mean;
}

// `compute`: of all sizes, for those that no operation was short enough for.
std::vector<InterferenceSegment> segments_by_size(const std::vector<InterferencePoint>& points,
                                                  const Mean& compute) {
    std::vector<InterferenceSegment> segments;
    for (std::size_t i = 0; i < points.size(); ++i) {
        InterferencePoint point = points[i];
        if (point.compute_error == 0) {
            point.compute_slowdown = compute.value;
            point.compute_error = compute.error;
        }
        segments.push_back(segment_of(point.compute_slowdown, point.compute_error,
                                      point.communication_slowdown, point.communication_error));
        if (i + 1 < points.size()) {
            const double middle = std::sqrt(static_cast<double>(point.size.count) *
                                            static_cast<double>(points[i + 1].size.count));
            segments.back().up_to = Bytes{std::llround(middle)};
        }
    }
    return segments;
}

}  // namespace

InterferenceFit fit_interference(const std::vector<ContentionRecord>& records) {
    InterferenceFit fit;
    std::vector<InterferencePoint> with_compute;
    for (const auto& [size, factors] : factors_by_size(records)) {
        fit.points.push_back(point_of(size, factors));
        if (!factors.compute.empty()) {
            with_compute.push_back(fit.points.back());
        }
    }
    if (fit.points.empty()) {
        return fit;
    }
    const Mean communication =
        weighted_mean(fit.points, std::mem_fn(&InterferencePoint::communication_slowdown),
                      std::mem_fn(&InterferencePoint::communication_error));
    const Mean compute =
        with_compute.empty()
            ? Mean{.value = 1}
            : weighted_mean(with_compute, std::mem_fn(&InterferencePoint::compute_slowdown),
                            std::mem_fn(&InterferencePoint::compute_error));
    // Two factors are free in the one case, two per size in the other, which then fits exactly.
    const auto n = static_cast<double>(fit.points.size());
    const double gain = communication.chi_squared + compute.chi_squared;
    constexpr std::size_t most_segments = 64;  // of a link file
    const bool size_matters =
        gain > 2 * (n - 1) * std::log(2 * n) && fit.points.size() <= most_segments;
    fit.segments = size_matters ? segments_by_size(fit.points, compute)
                                : std::vector{segment_of(compute.value, compute.error,
                                                         communication.value, communication.error)};
    return fit;
}

}  // namespace bucketwise
