// Order statistics of samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

#include "sim/base/transformed.h"
#include "sim/base/units.h"

namespace bucketwise {

// The value below which the share `q` of the samples lies, linearly between neighbours (numpy's
// default, type 7 of Hyndman and Fan 1996). Precondition (asserted): samples, 0 <= q <= 1.
double quantile(std::vector<double> samples, double q);
double mean(const std::vector<double>& samples);  // precondition (asserted): samples

// As numpy's std(ddof=1); 0 of a single sample.
double standard_deviation(const std::vector<double>& samples);

// The deviation in a table that neither rows nor columns explain: each value is a common part, its
// row's part, its column's part and its own part (two-way analysis of variance without
// replication). Precondition (asserted): two rows or more, of two values or more each, all equally
// long.
double own_deviation(const std::vector<std::vector<double>>& rows);

double median(std::vector<double> samples);
Duration median(std::vector<Duration> samples);  // of an even number, the middle of two, cut

// The larger one in the middle of an even number: a value that was measured, not the mean of two.
// Precondition: samples.
template <typename T>
T upper_median(std::vector<T> samples) {
    const auto middle = samples.begin() + std::ssize(samples) / 2;
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
}

// The median of value(record) over all records; `value` may be a member.
template <typename Records, typename Value>
auto median_of(const Records& records, const Value& value) {
    return median(transformed(records, value));
}

// The same for each place of the lists that the records have, all as long as the first one's.
template <typename Records, typename List>
std::vector<double> medians_of(const Records& records, const List& list) {
    std::vector<double> medians(std::invoke(list, *std::begin(records)).size());
    for (std::size_t i = 0; i < medians.size(); ++i) {
        medians[i] =
            median_of(records, [&](const auto& record) { return std::invoke(list, record)[i]; });
    }
    return medians;
}

// Interquartile range by the median: how far samples lie apart, robustly.
double spread(const std::vector<double>& samples);

// Standard deviation by the interquartile range of a normal distribution: outliers do not move it.
double robust_deviation(const std::vector<double>& samples);

// Standard error of the median of normal samples: sqrt(pi / 2) deviations over the root of their
// number. One sample: unknown, zero.
double standard_error_of_median(const std::vector<double>& samples);

// The one of sorted samples at rank q (n - 1), rounded. Preconditions as quantile()'s.
template <typename Sample>
Sample sample_at(const std::vector<Sample>& sorted, double q) {
    return sorted[static_cast<std::size_t>(std::round(q * static_cast<double>(sorted.size() - 1)))];
}

// The value that Student's t with so many degrees of freedom exceeds with probability `above`.
// Precondition (asserted): 1 degree or more, 0 < above < 0.5.
double student_t_exceeded(double above, std::int64_t degrees);

struct MedianInterval {
    double low = 0;
    double high = 0;
    bool operator==(const MedianInterval&) const = default;
};

// The 95 % percentile bootstrap interval of the median (Efron 1979): 2,000 resamples, always the
// same ones for as many samples.
MedianInterval median_interval(const std::vector<double>& samples);

}  // namespace bucketwise
