#include "calibrate/comparison/error_measures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

std::vector<double> mean_ranks(const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
    std::vector<double> ranks(values.size());
    for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin;
        while (end < order.size() && values[order[end]] == values[order[begin]]) {
            ++end;
        }
        const double mean_rank = static_cast<double>(begin + end - 1) / 2;
        for (std::size_t i = begin; i < end; ++i) {
            ranks[order[i]] = mean_rank;
        }
        begin = end;
    }
    return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
    const double mean_a = mean(a);
    const double mean_b = mean(b);
    double covariance = 0;
    double variance_a = 0;
    double variance_b = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        covariance += (a[i] - mean_a) * (b[i] - mean_b);
        variance_a += (a[i] - mean_a) * (a[i] - mean_a);
        variance_b += (b[i] - mean_b) * (b[i] - mean_b);
    }
    const double scale = std::sqrt(variance_a * variance_b);
    return scale > 0 ? covariance / scale : 0.0;
}

double absolute_error(const ComparedPoint& point) {
    return std::abs(relative_error(point));
}

}  // namespace

double relative_error(const ComparedPoint& point) {
    return point.predicted_step_ms / point.measured_step_ms - 1;
}

double mean_absolute_percentage_error(const std::vector<ComparedPoint>& points) {
    return mean(transformed(points, absolute_error));
}

double largest_absolute_error(const std::vector<ComparedPoint>& points) {
    return std::ranges::max(transformed(points, absolute_error));
}

double regret(const std::vector<ComparedPoint>& points, std::size_t chosen) {
    const auto best = std::ranges::min_element(points, {}, &ComparedPoint::measured_step_ms);
    return points[chosen].measured_step_ms / best->measured_step_ms - 1;
}

double rank_correlation(const std::vector<ComparedPoint>& points) {
    return correlation(mean_ranks(transformed(points, &ComparedPoint::predicted_step_ms)),
                       mean_ranks(transformed(points, &ComparedPoint::measured_step_ms)));
}

}  // namespace bucketwise
