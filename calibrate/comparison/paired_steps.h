// Steps of several plans, measured in rounds: how much slower is one plan than another?
//
// A machine's speed drifts, and rounds of one run differ by more than plans do. So plans are
// compared within rounds only: the difference of the logarithms of two steps of one round, its
// mean over rounds, and an interval of that mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace bucketwise {

// By how much something is slower, as a share: 0.03 is 3 %.
struct SlowerBy {
    double low = 0;
    double middle = 0;
    double high = 0;
    bool operator==(const SlowerBy&) const = default;
};

// The gain over something that is slower by `share`, as a share of the slower one.
constexpr double faster_by(double share) {
    return share / (1 + share);
}

class PairedSteps {
  public:
    // [plan][round], microseconds, above 0; empty where a round did not measure a plan.
    // Every plan has as many rounds. Precondition (asserted): a plan.
    explicit PairedSteps(const std::vector<std::vector<std::optional<double>>>& step_us);

    [[nodiscard]] std::size_t plans() const { return logs_.size(); }
    // The number of rounds that measured both.
    [[nodiscard]] std::int64_t rounds_of(std::size_t plan, std::size_t other) const;

    // By plan: how much slower than `reference`, by the rounds they share, without an interval. A
    // fifth of the rounds' differences is left out at each end, as single ones may be far off.
    // Empty: they share no round.
    [[nodiscard]] std::vector<std::optional<double>> slower_than(std::size_t reference) const;

    // The interval that holds the true value in all but `outside` of cases, half of these on each
    // side (Tukey and McLaughlin 1963, on the Winsorized deviation; a pair's own variance is
    // weighed with that of all pairs, which counts as four rounds). Empty: it has no bounds, as
    // they share no round or no deviation is known.
    [[nodiscard]] std::optional<SlowerBy> slower(std::size_t plan, std::size_t other,
                                                 double outside) const;

  private:
    struct Differences {
        double mean = 0;      // trimmed
        double variance = 0;  // of one that counts as much as one untrimmed
        std::int64_t rounds = 0;
        std::int64_t degrees = 0;
    };
    [[nodiscard]] std::optional<Differences> differences(std::size_t plan, std::size_t other) const;

    std::vector<std::vector<std::optional<double>>> logs_;
    std::optional<double> pooled_variance_;  // of one difference; none: no pair shares two rounds
};

}  // namespace bucketwise
