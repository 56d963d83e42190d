#include "sim/base/statistics.h"

#include <numeric>
#include <random>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {

double quantile(std::vector<double> samples, double q) {
    invariant(!samples.empty() && q >= 0 && q <= 1, "a quantile of samples");
    std::sort(samples.begin(), samples.end());
    const double at = q * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(std::floor(at));
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return std::lerp(samples[below], samples[above], at - std::floor(at));
}

double mean(const std::vector<double>& samples) {
    invariant(!samples.empty(), "a mean of samples");
    return std::accumulate(samples.begin(), samples.end(), 0.0) /
           static_cast<double>(samples.size());
}

double standard_deviation(const std::vector<double>& samples) {
    if (samples.size() < 2) {
        return 0;
    }
    const double center = mean(samples);
    const double squares =
        std::accumulate(samples.begin(), samples.end(), 0.0, [center](double sum, double sample) {
            return sum + (sample - center) * (sample - center);
        });
    return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

double own_deviation(const std::vector<std::vector<double>>& rows) {
    invariant(rows.size() > 1 && rows.front().size() > 1, "a table of two rows and columns");
    const std::size_t columns = rows.front().size();
    std::vector<double> of_column(columns, 0.0);
    for (const std::vector<double>& row : rows) {
        invariant(row.size() == columns, "rows of one length");
        for (std::size_t column = 0; column < columns; ++column) {
            of_column[column] += row[column] / static_cast<double>(rows.size());
        }
    }
    const double all = mean(of_column);
    double squares = 0;
    for (const std::vector<double>& row : rows) {
        const double of_row = mean(row);
        for (std::size_t column = 0; column < columns; ++column) {
            const double own = row[column] - of_row - of_column[column] + all;
            squares += own * own;
        }
    }
    return std::sqrt(squares / static_cast<double>((rows.size() - 1) * (columns - 1)));
}

double median(std::vector<double> samples) {
    return quantile(std::move(samples), 0.5);
}

Duration median(std::vector<Duration> samples) {
    invariant(!samples.empty(), "there is a median");
    std::sort(samples.begin(), samples.end());
    const std::size_t middle = samples.size() / 2;
    return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

double robust_deviation(const std::vector<double>& samples) {
    constexpr double quartiles_of_normal = 1.3489795003921634;  // apart, in standard deviations
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / quartiles_of_normal;
}

double standard_error_of_median(const std::vector<double>& samples) {
    constexpr double root_of_half_pi = 1.2533141373155003;
    return root_of_half_pi * robust_deviation(samples) /
           std::sqrt(static_cast<double>(samples.size()));
}

namespace {

// Half of the probability that |t| is below tan(angle) roots of the degrees: finite sums for whole
// degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
double student_t_within(double angle, std::int64_t degrees) {
    constexpr double pi = 3.14159265358979323846;
    const double cosine = std::cos(angle);
    const bool odd = degrees % 2 == 1;
    double term = odd ? cosine : 1.0;
    double sum = degrees == 1 ? 0.0 : term;
    for (std::int64_t k = odd ? 3 : 2; k < degrees; k += 2) {
        term *= cosine * cosine * static_cast<double>(k - 1) / static_cast<double>(k);
        sum += term;
    }
    const double both = odd ? 2 / pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
    return both / 2;
}

}  // namespace

double student_t_exceeded(double above, std::int64_t degrees) {
    invariant(degrees >= 1 && above > 0 && above < 0.5, "a quantile of Student's t");
    constexpr std::int64_t as_good_as_normal = 1000;
    degrees = std::min(degrees, as_good_as_normal);
    double low = 0;
    double high = 1.5707963267948966;
    constexpr int halvings = 60;
    for (int i = 0; i < halvings; ++i) {
        const double middle = (low + high) / 2;
        (student_t_within(middle, degrees) < 0.5 - above ? low : high) = middle;
    }
    return std::tan(low) * std::sqrt(static_cast<double>(degrees));
}

MedianInterval median_interval(const std::vector<double>& samples) {
    invariant(!samples.empty(), "an interval of samples");
    constexpr int resamples = 2000;
    constexpr double tail = 0.025;
    std::mt19937_64 bits(1);
    std::vector<double> medians;
    std::vector<double> resample(samples.size());
    for (int i = 0; i < resamples; ++i) {
        for (double& value : resample) {
            value = samples[bits() % samples.size()];
        }
        medians.push_back(median(resample));
    }
    return {quantile(medians, tail), quantile(medians, 1 - tail)};
}

double spread(const std::vector<double>& samples) {
    const double middle = median(samples);
    return middle > 0 ? (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle : 0.0;
}

}  // namespace bucketwise
