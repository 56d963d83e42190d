// Order statistics of samples.
#pragma once

#include <vector>

namespace bucketwise {

// The value below which the share `q` of the samples lies, linearly between neighbours (numpy's
// default, type 7 of Hyndman and Fan 1996). Precondition (asserted): samples, 0 <= q <= 1.
double quantile(std::vector<double> samples, double q);
double mean(const std::vector<double>& samples);  // precondition (asserted): samples

// Of the samples, as numpy's std(ddof=1); 0 of a single one.
double standard_deviation(const std::vector<double>& samples);

double median(std::vector<double> samples);

// Interquartile range by the median: how far samples lie apart, robustly.
double spread(const std::vector<double>& samples);

// Standard deviation by the interquartile range of a normal distribution: outliers do not move it.
double robust_deviation(const std::vector<double>& samples);

// Standard error of the median of normal samples: sqrt(pi / 2) deviations over the root of their
// number. Of one sample: unknown, zero.
double standard_error_of_median(const std::vector<double>& samples);

struct MedianInterval {
    double low = 0;
    double high = 0;
    bool operator==(const MedianInterval&) const = default;
};

// The 95 % percentile bootstrap interval of the median (Efron 1979): 2,000 resamples, always the
// same ones for as many samples.
MedianInterval median_interval(const std::vector<double>& samples);

}  // namespace bucketwise
