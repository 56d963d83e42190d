#include "calibrate/comparison/compared_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

double rank_correlation(const std::vector<ComparedStep>& steps) {
    const auto ranks_of = [&](double ComparedStep::*time) {
        return transformed(doubled_ranks(transformed(steps, time)),
                           [](std::int64_t rank) { return static_cast<double>(rank); });
    };
    const std::vector<double> a = ranks_of(&ComparedStep::predicted_ms);
    const std::vector<double> b = ranks_of(&ComparedStep::measured_ms);
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

}  // namespace

std::vector<std::int64_t> doubled_ranks(const std::vector<double>& samples) {
    std::vector<std::size_t> order(samples.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return samples[i]; });
    std::vector<std::int64_t> ranks(samples.size());
    for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin;
        while (end < order.size() && samples[order[end]] == samples[order[begin]]) {
            ++end;
        }
        for (std::size_t i = begin; i < end; ++i) {
            ranks[order[i]] = static_cast<std::int64_t>(begin + end + 1);
        }
        begin = end;
    }
    return ranks;
}

ErrorMeasures measure_errors(const std::vector<ComparedStep>& steps, std::size_t chosen) {
    const std::vector<double> errors =
        transformed(steps, [](const ComparedStep& step) { return std::abs(step.error()); });
    const auto fastest = std::ranges::min_element(steps, {}, &ComparedStep::measured_ms);
    return {.chosen = chosen,
            .fastest = static_cast<std::size_t>(fastest - steps.begin()),
            .mape = mean(errors),
            .max_error = std::ranges::max(errors),
            .rank_correlation = rank_correlation(steps),
            .regret = steps[chosen].measured_ms / fastest->measured_ms - 1,
            .noise_floor = median_of(steps, [](const ComparedStep& step) {
                return (step.measured_interval_ms.high - step.measured_interval_ms.low) / 2 /
                       step.measured_ms;
            })};
}

}  // namespace bucketwise
