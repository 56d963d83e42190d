// The first words of a comparison: the action, its gain, how sure that is.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "calibrate/comparison/step_comparison.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/report/verdict.h"

namespace bucketwise {
namespace {

constexpr double shown_share = 0.0005;

std::string faster_text(const SlowerBy& other) {
    return percent_range_text(faster_by(other.low), faster_by(other.high)) + " faster";
}

std::string_view standard_name(const Comparison& c) {
    return c.sharded ? "the scenario's setting" : "the default";
}

// "bucket_cap_mb=4", "the default of 25 MiB"; "a group for each layer, kept after forward".
std::string setting_of(const Comparison& c, std::size_t point) {
    const MeasuredSetting& measured = c.points[point].measured;
    if (measured.sharding) {
        const std::string knobs = setting_text(*measured.sharding);
        return measured.is_default ? fmt::format("{} ({})", standard_name(c), knobs) : knobs;
    }
    if (measured.is_default || !measured.cap) {
        return "the default of " + setting_name(measured);
    }
    return cap_to_set_text(c.strategy, *measured.cap);
}

std::string to_do(const Comparison& c, std::size_t point) {
    const char* action = c.points[point].measured.is_default ? "Keep "
                         : c.sharded                         ? "Use "
                                                             : "Set ";
    return action + setting_of(c, point);
}

std::string held_text(const Comparison& c) {
    const MeasuredDecision& decision = c.decision;
    if (c.chosen == *c.default_point) {
        const double more = faster_by(decision.regret->high);
        return fmt::format("{}: no {} that was measured is {}faster.", to_do(c, c.chosen),
                           setting_word(c),
                           more < shown_share ? std::string("")
                                              : fmt::format("more than {} ", percent_text(more)));
    }
    const std::string cost = decision.regret->high < shown_share
                                 ? std::string("the fastest of all that were measured")
                                 : fmt::format("at most {} slower than the best measured",
                                               percent_text(decision.regret->high));
    if (!decision.gain || decision.gain->low <= 0) {
        return fmt::format("{}: statistically as fast as {}, and {}.", to_do(c, c.chosen),
                           standard_name(c), cost);
    }
    return fmt::format("{}: {} than {}, and {}.", to_do(c, c.chosen), faster_text(*decision.gain),
                       standard_name(c), cost);
}

std::string missed_text(const Comparison& c) {
    return fmt::format("{}, which is {} than {}, which was predicted to be best.",
                       to_do(c, c.decision.best), faster_text(*c.decision.regret),
                       setting_of(c, c.chosen));
}

// How long it would take until the widest interval that keeps the decision open is narrow enough,
// if it narrows with the root of the time and only what is open is measured.
std::string waiting_text_of(const Comparison& c) {
    constexpr double longest_s = 7200;
    const double resolution = c.decision.resolution.value_or(0);
    const auto points = static_cast<double>(c.points.size());
    constexpr double held_against = 2;  // the default and the best
    const double share =
        std::min((static_cast<double>(c.decision.open.size()) + held_against) / points, 1.0);
    const double more_s =
        share * c.measuring_s * (std::pow(resolution / most_noise_in_a_decision, 2) - 1);
    if (!(more_s > 0)) {
        return "";
    }
    return more_s > longest_s ? " Not even two more hours would settle it on this machine."
                              : fmt::format(" {} more would settle it.", waiting_text(more_s));
}

std::string luck_text(const Comparison& c, const std::string& act) {
    return fmt::format(
        "{}; but the prediction does not order these {}s (rank correlation {:.2f}), so that may "
        "be luck.",
        act, setting_word(c), c.rank_correlation);
}

std::string inconclusive_text(const Comparison& c) {
    const MeasuredDecision& decision = c.decision;
    const bool names_another = c.chosen != *c.default_point && decision.gain.has_value();
    std::string act = fmt::format("keep {}", setting_of(c, *c.default_point));
    if (names_another && decision.gain->low > 0) {
        act = fmt::format("{}: {} than {}", to_do(c, c.chosen), faster_text(*decision.gain),
                          standard_name(c));
    } else if (names_another && decision.gain_is_likely) {
        act = fmt::format(
            "{}: probably faster than {}, by {}, but {} is possible", to_do(c, c.chosen),
            standard_name(c), percent_text(faster_by(decision.gain->middle)),
            percent_range_text(faster_by(decision.gain->low), faster_by(decision.gain->high)));
    } else if (decision.verdict != Verdict::held) {
        const std::string noise =
            decision.resolution ? fmt::format("the noise is {}", percent_text(*decision.resolution))
                                : std::string("too few steps were measured");
        return fmt::format("Cannot tell which {} is best, as {}: {}.{}", setting_word(c), noise,
                           act, waiting_text_of(c));
    }
    if (decision.verdict == Verdict::held) {
        act.front() = act.front() == 'k' ? 'K' : act.front();
        return luck_text(c, act);
    }
    return fmt::format("{}; another {} may be faster still.{}", act, setting_word(c),
                       waiting_text_of(c));
}

std::string advised_text(const Comparison& c) {
    const SettingComparison& chosen = c.points[c.chosen];
    const std::string of_chosen = fmt::format(
        "predicted {} ms per step, measured {} ms ({})", three_digits(chosen.predicted_ms),
        three_digits(chosen.measured_ms), measured_interval_text(chosen));
    if (!has_decision(c)) {
        return fmt::format("Without {}s to choose from: {}.", setting_word(c), of_chosen);
    }
    return fmt::format(
        "Advised by the prediction: {}{}, {}.",
        chosen.measured.is_default ? fmt::format("{}, ", standard_name(c)) : std::string(""),
        setting_name(chosen.measured), of_chosen);
}

std::string regret_text(const Comparison& c) {
    const SlowerBy& regret = *c.decision.regret;
    return fmt::format(
        "The choice costs {} over the best measured ({}), {} in 95 % of cases: it {}.",
        percent_text(c.regret),
        c.fastest == c.chosen                     ? std::string("which it is")
        : c.points[c.fastest].measured.is_default ? std::string(standard_name(c))
                                                  : setting_name(c.points[c.fastest].measured),
        percent_range_text(std::max(regret.low, 0.0), regret.high),
        decision_verdict(c) == Verdict::held     ? "held"
        : decision_verdict(c) == Verdict::missed ? "missed"
                                                 : "is inconclusive");
}

std::string error_text(const Comparison& c) {
    const Verdict verdict = error_verdict(c);
    const std::string known =
        is_noise_known(c)
            ? fmt::format("with steps known to within {}", percent_text(c.noise_floor))
            : std::string("too few steps were measured to know their spread");
    const std::string judged = !is_noise_known(c) ? std::string("")
                               : verdict == Verdict::held
                                   ? fmt::format(": within the goal of {:g} %", 100 * mape_goal)
                               : verdict == Verdict::inconclusive
                                   ? std::string(": within the noise")
                                   : fmt::format(": the goal of {:g} % is missed", 100 * mape_goal);
    return fmt::format("Predicted steps are off by {} on average over {}, {} at most; {}{}.",
                       percent_text(c.mape),
                       counted(std::ssize(c.points), std::string(setting_word(c))),
                       percent_text(c.max_error), known, judged);
}

}  // namespace

std::string verdict_text(const Comparison& c) {
    if (!c.reasons_to_withhold.empty()) {
        return withheld_text(c.reasons_to_withhold);
    }
    if (c.shared_gpu) {
        return fmt::format("Do not take this for an interconnect: {}.", shared_gpu_warning);
    }
    if (!has_decision(c)) {
        const double error = c.points.front().error();
        return fmt::format("The predicted step is {} {} than the measured one.",
                           percent_text(std::abs(error)), error < 0 ? "shorter" : "longer");
    }
    switch (decision_verdict(c)) {
        case Verdict::held:
            return held_text(c);
        case Verdict::missed:
            return missed_text(c);
        case Verdict::inconclusive:
            return inconclusive_text(c);
    }
    return {};
}

std::vector<std::string> findings(const Comparison& c) {
    std::vector<std::string> lines{advised_text(c)};
    if (has_decision(c)) {
        if (!c.chosen_is_advised) {
            lines.push_back(fmt::format(
                "The advised {}, {}, was {}; this one, predicted {} slower, stands for it.",
                setting_word(c), c.advised,
                c.advised_was_measured ? "measured less often" : "not measured",
                percent_text(
                    std::max(c.points[c.chosen].predicted_ms / c.advised_step_ms - 1, 0.0))));
        }
        if (c.decision.regret) {
            lines.push_back(regret_text(c));
        }
    }
    lines.push_back(error_text(c));
    return lines;
}

}  // namespace bucketwise
