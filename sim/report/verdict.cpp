#include "sim/report/verdict.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "sim/report/lever_text.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/report/sweep_table.h"

namespace bucketwise {
namespace {

// DDP and frameworks have a default cap; the other strategies are compared with DDP's.
std::string default_text(const Scenario& scenario, const Prediction& prediction) {
    const Strategy strategy = scenario.sync.strategy;
    return (is_ddp(strategy) || framework_of(strategy) ? "the default of " : "DDP's default of ") +
           bucket_cap_text(prediction.default_cap.cap.size());
}

std::string keeping_text(const Scenario& scenario, const Prediction& prediction) {
    const Evaluation& left = prediction.default_cap;
    const double forgone =
        std::max(share_of(left.step() - prediction.fastest().step(), left.step()), 0.0);
    std::string text = fmt::format("Keep {}: no cap is ", default_text(scenario, prediction));
    text += forgone < 0.0005 ? "faster" : fmt::format("more than {} faster", percent_text(forgone));
    if (left.confidence && left.confidence->regret.most > std::max(forgone, plateau_tolerance)) {
        text += fmt::format("; at the limit of the model's error one could be {} faster",
                            percent_text(left.confidence->regret.most));
    }
    return text + ".";
}

std::string setting_text(const Scenario& scenario, const Prediction& prediction,
                         const std::optional<DrawnShare>& saved) {
    const Evaluation& best = prediction.sweep[prediction.best];
    const double typical =
        share_of(prediction.default_cap.step() - best.step(), prediction.default_cap.step());
    const std::string set =
        fmt::format("Set {}: ", cap_to_set_text(scenario.sync.strategy, best.cap.size().value()));
    const std::string the_default = default_text(scenario, prediction);
    if (!saved) {
        return fmt::format("{}{}.", set, faster_than_text(typical, typical, the_default));
    }
    if (saved->low > 0) {
        return fmt::format("{}{}.", set, faster_than_text(saved->low, saved->high, the_default));
    }
    constexpr double noticeable = 0.001;
    if (typical < noticeable) {
        return fmt::format(
            "{}no faster than {} if the model is right, but safer: from {} slower to {} faster "
            "within its error.",
            set, the_default, percent_text(-saved->low), percent_text(std::max(saved->high, 0.0)));
    }
    return fmt::format("{}probably {} faster than {}; from {} slower to {} faster is possible.",
                       set, percent_text(typical), the_default, percent_text(-saved->low),
                       percent_text(saved->high));
}

// "collectives cost computing (assumed 1.28 times; from 1.06 on, keep the default)".
std::string assumption_text(const DecidingCost& decides) {
    const bool in_us = decides.cost == OverlapTerm::each;
    const auto number = [&](double value) {
        return in_us ? three_digits(value) + " us" : fmt::format("{:.2f}", value);
    };
    constexpr std::array<const char*, every<OverlapTerm>.size()> what{
        "what collectives cost computing", "how much longer collectives take beside computing",
        "what each collective costs, whatever its size"};
    return fmt::format("{} (assumed {}; {}, keep the default)",
                       what[static_cast<std::size_t>(decides.cost)], number(decides.assumed),
                       decides.saves_above ? "below " + number(decides.turns)
                                           : "from " + number(decides.turns) + " on");
}

std::string cannot_tell_text(const Scenario& scenario, const Prediction& prediction,
                             const OverlapDoubt& doubt) {
    constexpr double noticeable = 5e-4;
    const std::string faster = percent_text(doubt.saved.high) + " faster";
    std::string text = fmt::format(
        "Cannot tell from priors: keep {}. {} buckets may be {}. ",
        default_text(scenario, prediction), doubt.larger_buckets ? "Larger" : "Smaller",
        -doubt.saved.low < noticeable
            ? "up to " + faster + " or no faster at all"
            : fmt::format("from {} slower to {}", percent_text(-doubt.saved.low), faster));
    text += doubt.cost ? fmt::format("This hangs on {}. ", assumption_text(*doubt.cost))
                       : "This hangs on what overlapping costs, which nobody measured. ";
    return text + "Ten minutes of `validate` or 50 steps of `bw.advise` would settle it.";
}

std::string text_without_choice(const Scenario& scenario, const Prediction& prediction) {
    const Duration step = prediction.sweep[prediction.best].step();
    if (scenario.sync.bucket_cap_list.empty()) {
        return fmt::format("A step takes {}; {} has no bucket cap to choose.", ms_text(step),
                           name_of(scenario.sync.strategy));
    }
    const Duration left = prediction.default_cap.step();
    return fmt::format("A step takes {} with the caps of bucket_cap_mib_list, {} {} {}.",
                       ms_text(step), percent_text(std::abs(share_of(left - step, left))),
                       step > left ? "slower than with" : "faster than with",
                       default_text(scenario, prediction));
}

// Advises DDP where it beats every cap of another strategy.
std::string ddp_text(const Prediction& prediction) {
    constexpr double worth_changing = 0.01;
    if (!prediction.with_ddp) {
        return "";
    }
    const Duration best = std::min(prediction.fastest().step(), prediction.advised().step());
    const double faster = share_of(best - prediction.with_ddp->step(), best);
    return faster < worth_changing
               ? ""
               : fmt::format(
                     " Better, use DistributedDataParallel (strategy ddp): {} with its default "
                     "caps.",
                     faster_text(faster, faster));
}

// --- sharded steps ---

// "1.2 to 2.3 % less than with the scenario's setting"; "probably 1.2 % less than with the
// scenario's setting (from 0.2 % more to 2.3 % less)".
std::string saved_text(double typical, const DrawnShare& saved) {
    constexpr double noticeable = 0.0005;
    constexpr std::string_view than = "than with the scenario's setting";
    const auto side = [](double share) {
        return percent_text(std::abs(share)) + (share < 0 ? " more" : " less");
    };
    if (saved.low > 0) {
        return fmt::format("{} less {}", percent_range_text(saved.low, saved.high), than);
    }
    if (saved.high < 0) {
        return fmt::format("{} more {}", percent_range_text(-saved.high, -saved.low), than);
    }
    return std::max({std::abs(typical), -saved.low, saved.high}) < noticeable
               ? "as with the scenario's setting"
               : fmt::format("probably {} {} (from {} to {})", side(typical), than, side(saved.low),
                             side(saved.high));
}

bool keeps_sharding(const Prediction& prediction) {
    const Evaluation& best = prediction.advised();
    const Evaluation& own = prediction.default_cap;
    return best.times == own.times && best.memory == own.memory;
}

std::string sharded_text(const Prediction& prediction) {
    const Evaluation& best = prediction.advised();
    const Evaluation& own = prediction.default_cap;
    if (!prediction.best_fits) {
        return fmt::format("No setting fits: the smallest, {}, needs {}, and the device has {}.",
                           setting_text(best.sharded->request), memory_text(best.peak()),
                           memory_text(*best.memory->device));
    }
    std::string text =
        fmt::format("{}: {} per step", setting_text(best.sharded->request), ms_text(best.step()));
    if (best.sharded->request.strategy != ShardedStrategy::zero3) {
        text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
    }
    if (keeps_sharding(prediction)) {
        text += ", the scenario's own setting";
    } else if (own.fits() || best.step() <= own.step()) {
        const double typical = share_of(own.step() - best.step(), own.step());
        text += ", " + saved_text(typical, *best.confidence->regret.saved);
    }
    return text + fmt::format(", with {} of memory at most{}.", memory_text(best.peak()),
                              own.fits() ? "" : "; the scenario's setting does not fit");
}

}  // namespace

std::string cap_to_set_text(Strategy strategy, Bytes cap) {
    return is_ddp(strategy) ? fmt::format("bucket_cap_mb={}", typed_mib(cap))
                            : "a bucket cap of " + bucket_cap_text(cap);
}

std::vector<std::string> notes_of(const Scenario& scenario, std::vector<std::string> notes) {
    std::ranges::copy(caveats(scenario), std::back_inserter(notes));
    return notes;
}

std::string_view strategy_of(const Scenario& scenario) {
    return scenario.sharding ? name_of(scenario.sharding->strategy)
                             : name_of(scenario.sync.strategy);
}

std::string withheld_text(const std::vector<std::string>& reasons) {
    return fmt::format("Do not rely on this: {}.", fmt::join(reasons, "; "));
}

PredictedVerdict verdict_of(const Scenario& scenario, const Prediction& prediction) {
    PredictedVerdict verdict;
    const Evaluation& best = prediction.sweep[prediction.best];
    if (best.sharded) {
        verdict.text = sharded_text(prediction);
        verdict.advice = !prediction.best_fits        ? Advice::does_not_fit
                         : keeps_sharding(prediction) ? Advice::keep_sharding
                                                      : Advice::set_sharding;
        if (verdict.advice == Advice::set_sharding) {
            verdict.saved = best.confidence->regret.saved;
        }
    } else if (best.cap.is_none()) {
        verdict.text = text_without_choice(scenario, prediction);
    } else if (prediction.doubt) {
        verdict.advice = Advice::cannot_tell;
        verdict.text = cannot_tell_text(scenario, prediction, *prediction.doubt);
    } else if (prediction.keep_default || prediction.default_is_fastest) {
        verdict.advice = Advice::keep_default;
        verdict.text = keeping_text(scenario, prediction);
    } else {
        verdict.advice = Advice::set_cap;
        if (best.confidence) {
            verdict.saved = best.confidence->regret.saved;
        }
        verdict.text = setting_text(scenario, prediction, verdict.saved);
    }
    verdict.text += ddp_text(prediction) + levers_sentence(scenario, prediction.levers);
    const std::vector<std::string> reasons = reasons_to_withhold(scenario);
    if (!reasons.empty()) {
        verdict = {.advice = Advice::withheld, .text = withheld_text(reasons)};
    }
    if (!prediction.misfit.empty()) {
        verdict = {.advice = Advice::does_not_fit, .text = prediction.misfit};
    }
    return verdict;
}

}  // namespace bucketwise
