#include "calibrate/comparison/paired_steps.h"

#include <algorithm>
#include <cmath>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

constexpr std::int64_t one_in_trimmed_at_each_end = 5;
// The variance of all pairs together counts as this many of a pair's own degrees of freedom.
constexpr std::int64_t prior_degrees = 4;

}  // namespace

PairedSteps::PairedSteps(const std::vector<std::vector<std::optional<double>>>& step_us)
    : logs_(step_us) {
    invariant(!logs_.empty(), "there is a plan");
    for (std::vector<std::optional<double>>& of_plan : logs_) {
        invariant(of_plan.size() == logs_.front().size(), "as many rounds of every plan");
        for (std::optional<double>& step : of_plan) {
            invariant(!step || *step > 0, "a step takes time");
            step = step ? std::optional(std::log(*step)) : std::nullopt;
        }
    }
    double sum = 0;
    std::int64_t degrees = 0;
    for (std::size_t plan = 0; plan < plans(); ++plan) {
        for (std::size_t other = 0; other < plan; ++other) {
            const std::optional<Differences> pair = differences(plan, other);
            if (pair && pair->degrees > 0) {
                sum += static_cast<double>(pair->degrees) * pair->variance;
                degrees += pair->degrees;
            }
        }
    }
    if (degrees > 0) {
        pooled_variance_ = sum / static_cast<double>(degrees);
    }
}

std::int64_t PairedSteps::rounds_of(std::size_t plan, std::size_t other) const {
    std::int64_t rounds = 0;
    for (std::size_t round = 0; round < logs_.front().size(); ++round) {
        rounds += logs_[plan][round] && logs_[other][round] ? 1 : 0;
    }
    return rounds;
}

std::optional<PairedSteps::Differences> PairedSteps::differences(std::size_t plan,
                                                                 std::size_t other) const {
    std::vector<double> each;
    for (std::size_t round = 0; round < logs_.front().size(); ++round) {
        const std::optional<double>& one = logs_[plan][round];
        const std::optional<double>& two = logs_[other][round];
        if (one && two) {
            each.push_back(*one - *two);
        }
    }
    if (each.empty()) {
        return std::nullopt;
    }
    std::ranges::sort(each);
    Differences result;
    result.rounds = std::ssize(each);
    const auto cut = static_cast<std::size_t>(result.rounds / one_in_trimmed_at_each_end);
    const std::size_t kept = each.size() - 2 * cut;
    const auto first_kept = each.begin() + static_cast<std::ptrdiff_t>(cut);
    result.mean = mean({first_kept, first_kept + static_cast<std::ptrdiff_t>(kept)});
    result.degrees = static_cast<std::int64_t>(kept) - 1;
    const double low = each[cut];
    const double high = each[cut + kept - 1];
    for (double& one : each) {
        one = std::clamp(one, low, high);  // Winsorized
    }
    const double scale = static_cast<double>(result.rounds) / static_cast<double>(kept);
    result.variance = std::pow(scale * standard_deviation(each), 2);
    return result;
}

std::vector<std::optional<double>> PairedSteps::slower_than(std::size_t reference) const {
    std::vector<std::optional<double>> slower(plans());
    for (std::size_t plan = 0; plan < plans(); ++plan) {
        if (const std::optional<Differences> pair = differences(plan, reference)) {
            slower[plan] = std::expm1(pair->mean);
        }
    }
    return slower;
}

std::optional<SlowerBy> PairedSteps::slower(std::size_t plan, std::size_t other,
                                            double outside) const {
    if (plan == other) {
        return SlowerBy{};
    }
    const std::optional<Differences> pair = differences(plan, other);
    if (!pair || !pooled_variance_) {
        return std::nullopt;
    }
    const auto own = static_cast<double>(pair->degrees);
    const auto prior = static_cast<double>(prior_degrees);
    const double variance = (own * pair->variance + prior * *pooled_variance_) / (own + prior);
    const double half_width = student_t_exceeded(outside / 2, pair->degrees + prior_degrees) *
                              std::sqrt(variance / static_cast<double>(pair->rounds));
    return SlowerBy{std::expm1(pair->mean - half_width), std::expm1(pair->mean),
                    std::expm1(pair->mean + half_width)};
}

}  // namespace bucketwise
