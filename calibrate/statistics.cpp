#include "calibrate/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "sim/invariant.h"

namespace bucketwise {

double quantile(std::vector<double> samples, double q) {
    invariant(!samples.empty() && q >= 0 && q <= 1, "a quantile of samples");
    std::sort(samples.begin(), samples.end());
    const double at = q * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(std::floor(at));
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return std::lerp(samples[below], samples[above], at - std::floor(at));
}

double median(std::vector<double> samples) {
    return quantile(std::move(samples), 0.5);
}

double spread(const std::vector<double>& samples) {
    const double middle = median(samples);
    return middle > 0 ? (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle : 0.0;
}

}  // namespace bucketwise
