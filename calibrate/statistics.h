// Order statistics of samples.
#pragma once

#include <vector>

namespace bucketwise {

// The value below which the share `q` of the samples lies, linearly between neighbours (numpy's
// default, type 7 of Hyndman and Fan 1996). Precondition (asserted): samples, 0 <= q <= 1.
double quantile(std::vector<double> samples, double q);
double median(std::vector<double> samples);

// Interquartile range by the median: how far samples lie apart, robustly.
double spread(const std::vector<double>& samples);

}  // namespace bucketwise
