// Order statistics of samples.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace bucketwise {

// The value below which the share `q` of the samples lies, linearly between neighbours (numpy's
// default, type 7 of Hyndman and Fan 1996). Precondition (asserted): samples, 0 <= q <= 1.
double quantile(std::vector<double> samples, double q);
double mean(const std::vector<double>& samples);  // precondition (asserted): samples

// As numpy's std(ddof=1); 0 of a single sample.
double standard_deviation(const std::vector<double>& samples);

double median(std::vector<double> samples);

// Interquartile range by the median: how far samples lie apart, robustly.
double spread(const std::vector<double>& samples);

// Standard deviation by the interquartile range of a normal distribution: outliers do not move it.
double robust_deviation(const std::vector<double>& samples);

// Standard error of the median of normal samples: sqrt(pi / 2) deviations over the root of their
// number. Of one sample: unknown, zero.
double standard_error_of_median(const std::vector<double>& samples);

// The one of sorted samples at rank q (n - 1), rounded. Preconditions as quantile()'s.
template <typename Sample>
Sample sample_at(const std::vector<Sample>& sorted, double q) {
    return sorted[static_cast<std::size_t>(std::round(q * static_cast<double>(sorted.size() - 1)))];
}

struct MedianInterval {
    double low = 0;
    double high = 0;
    bool operator==(const MedianInterval&) const = default;
};

// The 95 % percentile bootstrap interval of the median (Efron 1979): 2,000 resamples, always the
// same ones for as many samples.
MedianInterval median_interval(const std::vector<double>& samples);

}  // namespace bucketwise
