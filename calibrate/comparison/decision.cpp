#include "calibrate/comparison/decision.h"

#include <algorithm>
#include <set>

namespace bucketwise {
namespace {

constexpr double outside_95_percent = 0.05;
constexpr double outside_80_percent_on_one_side = 0.4;
// A plan can lose only after this many rounds: the first ones may be disturbed alike.
constexpr std::int64_t fewest_rounds = 3;
// Readers see a gain as a range; a narrower one than this is precise enough.
constexpr double narrow_gain = 0.02;

class Race {
  public:
    Race(const PairedSteps& steps, std::size_t advised)
        : steps_(steps), advised_(advised), best_(fastest()) {
        // Any of the others might look slower by chance.
        const auto others = static_cast<double>(std::max<std::size_t>(steps.plans(), 2) - 1);
        outside_ = outside_95_percent / others;
        for (std::size_t plan = 0; plan < steps.plans(); ++plan) {
            if (!is_out(plan)) {
                running_.push_back(plan);
            }
        }
    }

    [[nodiscard]] std::size_t best() const { return best_; }

    // The advice competes with every plan that may be the best.
    [[nodiscard]] std::optional<SlowerBy> regret() const {
        SlowerBy regret{0, middle(), 0};
        for (const std::size_t plan : running_) {
            const auto of_plan = steps_.slower(advised_, plan, outside_95_percent);
            if (!of_plan) {
                return std::nullopt;
            }
            regret.high = std::max(regret.high, of_plan->high);
        }
        for (std::size_t plan = 0; plan < steps_.plans(); ++plan) {
            if (const auto of_plan = steps_.slower(advised_, plan, outside_)) {
                regret.low = std::max(regret.low, of_plan->low);
            }
        }
        regret.high = std::max(regret.high, regret.middle);
        regret.low = std::min(regret.low, regret.middle);
        return regret;
    }

    // The plans that might still be faster than the advised one by more than the goal or, where the
    // advice has missed, than the best one.
    [[nodiscard]] std::vector<std::size_t> open(bool missed) const {
        const std::size_t held_against = missed ? best_ : advised_;
        std::vector<std::size_t> open;
        for (const std::size_t plan : running_) {
            const auto slower = steps_.slower(held_against, plan, outside_95_percent);
            if (plan != held_against && (!slower || slower->high > regret_goal ||
                                         steps_.rounds_of(plan, held_against) < fewest_rounds)) {
                open.push_back(plan);
            }
        }
        return open;
    }

  private:
    [[nodiscard]] double middle() const {
        const auto of_best = steps_.slower(advised_, best_, outside_95_percent);
        return of_best ? std::max(of_best->middle, 0.0) : 0.0;
    }

    // The advised plan, unless another one is faster.
    [[nodiscard]] std::size_t fastest() const {
        const std::vector<std::optional<double>> slower = steps_.slower_than(advised_);
        std::size_t best = advised_;
        for (std::size_t plan = 0; plan < slower.size(); ++plan) {
            best = slower[plan].value_or(0.0) < slower[best].value_or(0.0) ? plan : best;
        }
        return best;
    }

    [[nodiscard]] bool is_out(std::size_t plan) const {
        const auto slower = steps_.slower(plan, best_, outside_);
        return plan != best_ && slower && slower->low > 0 &&
               steps_.rounds_of(plan, best_) >= fewest_rounds;
    }

    const PairedSteps& steps_;
    std::size_t advised_;
    std::size_t best_;
    double outside_ = outside_95_percent;
    std::vector<std::size_t> running_;
};

Verdict verdict_of(const std::optional<SlowerBy>& regret) {
    if (!regret) {
        return Verdict::inconclusive;
    }
    return regret->low > regret_goal                                ? Verdict::missed
           : regret->high <= regret_goal + most_noise_in_a_decision ? Verdict::held
                                                                    : Verdict::inconclusive;
}

bool says_enough(const std::optional<SlowerBy>& gain) {
    const double width = gain ? gain->high - gain->low : 0.0;
    const bool has_sign = gain && (gain->low > 0 || gain->high < 0);
    return gain && (width <= narrow_gain / 2 || (has_sign && width <= narrow_gain));
}

}  // namespace

MeasuredDecision judge_decision(const PairedSteps& steps, std::size_t advised,
                                std::optional<std::size_t> standard) {
    const Race race(steps, advised);
    MeasuredDecision decision;
    decision.best = race.best();
    decision.regret = race.regret();
    decision.verdict = verdict_of(decision.regret);
    const bool missed = decision.verdict == Verdict::missed;
    std::set<std::size_t> open;
    for (const std::size_t plan : race.open(missed)) {
        open.insert(plan);
        const auto slower =
            steps.slower(missed ? decision.best : advised, plan, outside_95_percent);
        if (slower) {
            decision.resolution =
                std::max(decision.resolution.value_or(0.0), (slower->high - slower->low) / 2);
        }
    }
    if (standard && *standard != advised) {
        decision.gain = steps.slower(*standard, advised, outside_95_percent);
        const auto likely = steps.slower(*standard, advised, outside_80_percent_on_one_side);
        decision.gain_is_likely = likely && likely->low > 0;
    }
    const bool gain_is_known = !standard || *standard == advised || says_enough(decision.gain);
    if (!gain_is_known) {
        open.insert(*standard);
    }
    decision.settled = open.empty();
    decision.open.assign(open.begin(), open.end());
    return decision;
}

}  // namespace bucketwise
