#include "calibrate/gate/shift.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <tuple>

#include "calibrate/comparison/compared_steps.h"
#include "sim/base/invariant.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

std::vector<double> all_of(const RunSamples& runs) {
    std::vector<double> all;
    for (const std::vector<double>& run : runs) {
        all.insert(all.end(), run.begin(), run.end());
    }
    return all;
}

double size_of(const std::vector<double>& samples) {
    return static_cast<double>(samples.size());
}

// The share of all ways to take `taken` of the ranks whose sum is `least` or more.
double exact_chance(const std::vector<std::int64_t>& ranks, std::size_t taken, std::int64_t least) {
    const auto most = std::accumulate(ranks.begin(), ranks.end(), std::int64_t{0});
    const auto width = static_cast<std::size_t>(most + 1);
    std::vector<double> ways((taken + 1) * width, 0.0);  // by how many are taken, and their sum
    ways[0] = 1;
    std::size_t seen = 0;
    for (const std::int64_t rank : ranks) {
        const auto step = static_cast<std::size_t>(rank);
        ++seen;
        for (std::size_t count = std::min(taken, seen); count > 0; --count) {
            const double* const without = &ways[(count - 1) * width];
            double* const with = &ways[count * width];
            for (std::size_t sum = step; sum < width; ++sum) {
                with[sum] += without[sum - step];
            }
        }
    }
    const double* const sums = &ways[taken * width];
    const double as_large = std::accumulate(sums + least, sums + width, 0.0);
    return as_large / std::accumulate(sums, sums + width, 0.0);
}

double above_normal(double deviations) {
    return std::erfc(deviations / std::sqrt(2.0)) / 2;
}

// By the normal distribution with the same mean and variance, ties counted, which for more samples
// is indistinguishable from the exact one.
double normal_chance(const std::vector<std::int64_t>& ranks, std::size_t taken, std::int64_t sum) {
    const auto n = static_cast<double>(ranks.size());
    const auto k = static_cast<double>(taken);
    const double expected = k * (n + 1);  // of doubled ranks
    double squares = 0;
    for (const std::int64_t rank : ranks) {
        squares += std::pow(static_cast<double>(rank) - (n + 1), 2);
    }
    const double variance = k * (n - k) / (n * (n - 1)) * squares;
    return variance > 0
               ? above_normal((static_cast<double>(sum) - 1 - expected) / std::sqrt(variance))
               : 1.0;
}

// The least that chance_of_ranks() can be: all of one side above all of the other.
double least_chance(std::size_t before, std::size_t after) {
    double chance = 1;
    for (std::size_t i = 1; i <= after; ++i) {
        chance *= static_cast<double>(i) / static_cast<double>(before + i);
    }
    return chance;
}

// Deviations of the medians of runs from their side's mean, pooled, and its degrees of freedom.
struct RunSpread {
    double of_means = 0;  // the standard error of the difference of the sides' means
    double difference = 0;
    std::int64_t degrees = 0;
};

RunSpread run_spread(const RunSamples& before, const RunSamples& after) {
    RunSpread spread;
    double squares = 0;
    double inverse = 0;
    std::vector<double> means;
    for (const RunSamples* side : {&before, &after}) {
        std::vector<double> medians;
        for (const std::vector<double>& run : *side) {
            medians.push_back(median(run));
        }
        means.push_back(mean(medians));
        for (const double of_run : medians) {
            squares += std::pow(of_run - means.back(), 2);
        }
        spread.degrees += std::ssize(medians) - 1;
        inverse += 1 / size_of(medians);
    }
    spread.difference = means[1] - means[0];
    // A difference between two runs of one side and one of the other says next to nothing.
    constexpr std::int64_t fewest_degrees = 2;
    spread.degrees = spread.degrees < fewest_degrees ? 0 : spread.degrees;
    if (spread.degrees > 0) {
        spread.of_means = std::sqrt(squares / static_cast<double>(spread.degrees) * inverse);
    }
    return spread;
}

// A side without a fifth at each end: its mean, and the variance of that by the Winsorized
// deviation (Yuen 1974).
struct Trimmed {
    double mean = 0;
    double variance = 0;
    double degrees = 0;
};

Trimmed trimmed_of(std::vector<double> samples) {
    constexpr double left_out = 0.2;  // at each end
    std::ranges::sort(samples);
    const auto cut = static_cast<std::size_t>(left_out * size_of(samples));
    const std::vector<double> kept(samples.begin() + static_cast<std::ptrdiff_t>(cut),
                                   samples.end() - static_cast<std::ptrdiff_t>(cut));
    std::vector<double> winsorized;
    for (const double sample : samples) {
        winsorized.push_back(std::clamp(sample, kept.front(), kept.back()));
    }
    const double h = size_of(kept);
    const double squares = std::pow(standard_deviation(winsorized), 2) * (size_of(samples) - 1);
    return {.mean = mean(kept), .variance = h > 1 ? squares / (h * (h - 1)) : 0, .degrees = h - 1};
}

struct TrimmedShift {
    double difference = 0;
    double error = 0;
    std::int64_t degrees = 1;
};

// With Welch's degrees of freedom, fewer by as much as neighbours are alike. A side of one sample
// varies as the other does.
TrimmedShift trimmed_shift(const std::vector<double>& before, const std::vector<double>& after,
                           const SerialLoss& loss) {
    Trimmed old_side = trimmed_of(before);
    Trimmed new_side = trimmed_of(after);
    for (auto [one, other, count] : {std::tuple{&old_side, &new_side, after.size()},
                                     std::tuple{&new_side, &old_side, before.size()}}) {
        if (one->degrees < 1) {
            one->variance = other->variance * static_cast<double>(count);
            one->degrees = std::max(other->degrees, 1.0);
        }
    }
    const double variance = old_side.variance + new_side.variance;
    const double squares = std::pow(old_side.variance, 2) / old_side.degrees +
                           std::pow(new_side.variance, 2) / std::max(new_side.degrees, 1.0);
    const double degrees = squares > 0 ? variance * variance / squares * loss.degrees : 1.0;
    return {.difference = new_side.mean - old_side.mean,
            .error = std::sqrt(variance * loss.inflation),
            .degrees = std::max<std::int64_t>(std::llround(degrees), 1)};
}

// Adds, for ranks within one run, the products of neighbours' deviations, and the squares.
void add_neighbours(const std::vector<double>& run, double& products, double& squares) {
    const std::vector<std::int64_t> ranks = doubled_ranks(run);
    const double middle = size_of(run) + 1;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const double own = static_cast<double>(ranks[i]) - middle;
        squares += own * own;
        products += i + 1 < ranks.size() ? own * (static_cast<double>(ranks[i + 1]) - middle) : 0;
    }
}

// At most 2000 of the samples, spread evenly over them.
std::vector<double> thinned(std::vector<double> samples) {
    constexpr std::size_t most = 2000;
    if (samples.size() <= most) {
        return samples;
    }
    std::ranges::sort(samples);
    std::vector<double> kept;
    for (std::size_t i = 0; i < most; ++i) {
        kept.push_back(samples[(2 * i + 1) * samples.size() / (2 * most)]);
    }
    return kept;
}

// The median of all differences (Hodges and Lehmann 1963).
double middle_difference(const std::vector<double>& before, const std::vector<double>& after) {
    const std::vector<double> old_samples = thinned(before);
    std::vector<double> differences;
    for (const double now : thinned(after)) {
        for (const double then : old_samples) {
            differences.push_back(now - then);
        }
    }
    return median(std::move(differences));
}

}  // namespace

double chance_of_ranks(const std::vector<double>& before, const std::vector<double>& after) {
    constexpr std::size_t most_counted = 60;
    std::vector<double> all = before;
    all.insert(all.end(), after.begin(), after.end());
    const std::vector<std::int64_t> ranks = doubled_ranks(all);
    const std::int64_t sum =
        std::accumulate(ranks.end() - std::ssize(after), ranks.end(), std::int64_t{0});
    return all.size() <= most_counted ? exact_chance(ranks, after.size(), sum)
                                      : normal_chance(ranks, after.size(), sum);
}

SerialLoss serial_loss(const RunSamples& before, const RunSamples& after) {
    // Shorter runs say nothing of it.
    constexpr std::size_t fewest = 5;
    constexpr double most = 0.9;
    double products = 0;
    double squares = 0;
    double runs = 0;
    double samples = 0;
    for (const RunSamples* side : {&before, &after}) {
        for (const std::vector<double>& run : *side) {
            if (run.size() >= fewest) {
                add_neighbours(run, products, squares);
                ++runs;
                samples += size_of(run);
            }
        }
    }
    if (squares == 0) {
        return {};
    }
    // The estimate from n samples is too small by (1 + 3 rho) / n (Marriott and Pope 1954).
    const double length = samples / runs;
    const double scale = 1 - 3 / length;
    const double found = (products / squares + 1 / length) / scale;
    const double chance = 1 / ((samples - runs) * scale * scale);  // the variance of it without any
    const double correlation = found > 0 ? std::clamp(found - chance / found, 0.0, most) : 0.0;
    double inflation = 1;
    double power = 1;
    for (double lag = 1; lag < length; ++lag) {
        power *= correlation;
        inflation += 2 * (1 - lag / length) * power;
    }
    const double square = correlation * correlation;
    // Samples that are alike deviate from their own mean by less than from the true one.
    return {.correlation = correlation,
            .inflation = inflation * (length - 1) / std::max(length - inflation, 1.0),
            .degrees = (1 - square) / (1 + square)};
}

Shift shift_between(const RunSamples& before, const RunSamples& after, double false_alarms) {
    const std::vector<double> old_samples = all_of(before);
    const std::vector<double> new_samples = all_of(after);
    invariant(!old_samples.empty() && !new_samples.empty(), "samples on each side");
    const RunSpread runs = run_spread(before, after);
    const TrimmedShift trimmed =
        trimmed_shift(old_samples, new_samples, serial_loss(before, after));
    // The larger uncertainty of a mean over steps and one over runs.
    const auto left_to_chance = [&](double outside) {
        const double of_runs =
            runs.degrees == 0 ? 0 : student_t_exceeded(outside, runs.degrees) * runs.of_means;
        return std::max(student_t_exceeded(outside, trimmed.degrees) * trimmed.error, of_runs);
    };
    constexpr double outside_one_end = 0.025;  // of a 95 % interval
    constexpr double missed = 0.05;
    Shift shift{.middle = middle_difference(old_samples, new_samples)};
    shift.low = shift.middle - left_to_chance(outside_one_end);
    shift.high = shift.middle + left_to_chance(outside_one_end);
    shift.runs_are_known = runs.degrees > 0;
    shift.tellable = left_to_chance(false_alarms) + left_to_chance(missed);
    shift.can_be_told = least_chance(old_samples.size(), new_samples.size()) <= false_alarms;
    while (least_chance(shift.enough, shift.enough) > false_alarms) {
        ++shift.enough;
    }
    const auto is_beyond = [&](double direction) {
        const double by_runs = runs.degrees == 0 ? trimmed.difference : runs.difference;
        return direction * trimmed.difference >
                   student_t_exceeded(false_alarms, trimmed.degrees) * trimmed.error &&
               (runs.degrees == 0 ||
                direction * by_runs >
                    student_t_exceeded(false_alarms, runs.degrees) * runs.of_means);
    };
    shift.is_more = chance_of_ranks(old_samples, new_samples) <= false_alarms && is_beyond(1);
    shift.is_less = chance_of_ranks(new_samples, old_samples) <= false_alarms && is_beyond(-1);
    return shift;
}

}  // namespace bucketwise
