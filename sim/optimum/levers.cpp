#include "sim/optimum/levers.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "sim/base/error.h"
#include "sim/link/link_presets.h"
#include "sim/optimum/lever_candidates.h"
#include "sim/scenario/memory_need.h"
#include "sim/sharding/sharded_step.h"

namespace bucketwise {
namespace {

constexpr double worth_naming = 0.02;

// --- the step with a change ---

struct LeverOutcome {
    Duration step{0};
    Bytes memory;
    bool fits = true;

    [[nodiscard]] std::pair<bool, Duration> rank() const { return {!fits, step}; }
};

// Steps of changed scenarios, each the better of the scenario's own caps or groups and the advised
// ones.
class LeverTrials {
  public:
    LeverTrials(const Scenario& scenario, const StepInput& input, const Evaluation& advised)
        : workload_(input.workload), own_(scenario), advised_(advised) {}

    [[nodiscard]] LeverOutcome outcome(const Scenario& scenario) const {
        return scenario.sharding ? sharded(scenario) : replicated(scenario);
    }

  private:
    [[nodiscard]] bool has_own_workload(const Scenario& scenario) const {
        return scenario.workload == own_.workload &&
               joint_computing(scenario) == joint_computing(own_);
    }

    [[nodiscard]] LeverOutcome sharded(const Scenario& scenario) const {
        ShardedInput input = has_own_workload(scenario) ? sharded_input(scenario, workload_)
                                                        : sharded_input(scenario);
        const auto outcome_here = [&] {
            const Evaluation row = evaluate_sharded(scenario, input);
            return LeverOutcome{row.step(), row.peak(), row.fits()};
        };
        const ShardingRequest advised =
            advised_.sharded ? with_turned_knobs(input.request, advised_.sharded->request)
                             : input.request;
        const LeverOutcome own = outcome_here();
        if (advised == input.request) {
            return own;
        }
        input.request = advised;
        return std::min(own, outcome_here(), by_rank);
    }

    [[nodiscard]] LeverOutcome replicated(const Scenario& scenario) const {
        const bool own_workload = has_own_workload(scenario) && !advised_.sharded;
        const StepInput input =
            own_workload ? step_input(scenario, workload_) : step_input(scenario);
        const MemoryNeed need = memory_need(scenario);
        LeverOutcome outcome{Evaluator(input, scenario.sync).step(cap_of(scenario.sync)),
                             need.most(), need.fits()};
        if (has_cap(scenario.sync)) {
            outcome.step = Evaluator(input, without_caps(scenario.sync)).step(Cap());
            if (!advised_.sharded && !advised_.cap.is_none() && !advised_.cap.is_default()) {
                outcome.step =
                    std::min(outcome.step, Evaluator(input, scenario.sync).step(advised_.cap));
            }
        }
        return outcome;
    }

    static bool by_rank(const LeverOutcome& a, const LeverOutcome& b) {
        return a.rank() < b.rank();
    }

    const Workload& workload_;
    const Scenario& own_;
    const Evaluation& advised_;
};

// --- both ends of what nobody measured ---

struct LeverEnd {
    Scenario scenario;
    std::optional<Duration> now = {};  // the advised step there, once it is asked for
};

// The scenario at both ends of its presets, at the slow end of its link's first, and without
// assumed costs of overlap.
std::vector<LeverEnd> ends_of(const Scenario& scenario, bool assumes_interference) {
    std::vector<LeverEnd> ends;
    const LinkPreset* preset =
        scenario.link.preset.empty() ? nullptr : find_preset(scenario.link.preset);
    for (const PresetEnd end : {PresetEnd::slow, PresetEnd::fast}) {
        if (preset != nullptr) {
            ends.push_back({scenario});
            ends.back().scenario.link = preset_end(*preset, end, scenario.link);
            ends.back().scenario.link.interference = scenario.link.interference;
        }
        if (has_prior_computing(scenario)) {
            ends.push_back({at_device_end(scenario, end)});
        }
    }
    if (assumes_interference) {
        ends.push_back({scenario});
        ends.back().scenario.link.interference = constant_interference({});
    }
    return ends;
}

struct TriedLever {
    std::vector<const LeverCandidate*> made;
    Scenario scenario;
    LeverOutcome outcome;
    double saved = 0;  // of the advised step
    double worth = 0;  // its mean with the slow end's of the link

    [[nodiscard]] LeverKind kind() const { return made.front()->change.kind; }

    [[nodiscard]] std::int64_t samples() const {
        std::int64_t all = 1;
        for (const LeverCandidate* candidate : made) {
            all *= candidate->samples;
        }
        return all;
    }
};

class LeverSearch {
  public:
    LeverSearch(const Scenario& scenario, const StepInput& input, const Prediction& prediction)
        : scenario_(scenario),
          trials_(scenario, input, prediction.advised()),
          now_(trials_.outcome(scenario)),
          ends_(ends_of(scenario, input.link.assumes_interference)) {}

    // Empty: an edit has no effect, or the result is impossible, does not fit or saves too little.
    std::optional<TriedLever> tried(const std::vector<const LeverCandidate*>& made) {
        std::optional<TriedLever> result = outcome(made);
        return result && result->outcome.fits && result->worth >= worth_naming ? std::move(result)
                                                                               : std::nullopt;
    }

    // Empty: an edit has no effect, or the result is impossible.
    std::optional<TriedLever> outcome(const std::vector<const LeverCandidate*>& made) {
        TriedLever result{made, scenario_, {}};
        for (const LeverCandidate* candidate : made) {
            if (!candidate->edit(result.scenario)) {
                return std::nullopt;
            }
        }
        try {
            result.outcome = trials_.outcome(result.scenario);
        } catch (const InputError&) {
            return std::nullopt;
        }
        result.saved = saved(now_.step, result.outcome.step, result.samples());
        result.worth = scenario_.link.preset.empty()
                           ? result.saved
                           : (result.saved + saved_at(ends_.front(), result)) / 2;
        return result;
    }

    [[nodiscard]] Lever lever(const TriedLever& tried) {
        Lever lever{.changes = {},
                    .step = tried.outcome.step / tried.samples(),
                    .typical = tried.saved,
                    .saved = {tried.saved, tried.saved},
                    .memory = (tried.outcome.memory - now_.memory).count};
        for (const LeverCandidate* candidate : tried.made) {
            lever.changes.push_back(candidate->change);
        }
        for (LeverEnd& end : ends_) {
            const double share = saved_at(end, tried);
            lever.saved.low = std::min(lever.saved.low, share);
            lever.saved.high = std::max(lever.saved.high, share);
        }
        return lever;
    }

  private:
    static double saved(Duration now, Duration then, std::int64_t samples) {
        return 1 - static_cast<double>(then.count()) / static_cast<double>(samples) /
                       std::max(static_cast<double>(now.count()), 1.0);
    }

    double saved_at(LeverEnd& end, const TriedLever& tried) const {
        if (!end.now) {
            end.now = trials_.outcome(end.scenario).step;
        }
        Scenario there = end.scenario;
        for (const LeverCandidate* candidate : tried.made) {
            candidate->edit(there);
        }
        return saved(*end.now, trials_.outcome(there).step, tried.samples());
    }

    const Scenario& scenario_;
    LeverTrials trials_;
    LeverOutcome now_;
    std::vector<LeverEnd> ends_;
};

std::vector<TriedLever> singles_of(LeverSearch& search,
                                   const std::vector<LeverCandidate>& candidates) {
    std::vector<TriedLever> found;
    for (const LeverCandidate& candidate : candidates) {
        if (auto tried = search.tried({&candidate})) {
            found.push_back(*std::move(tried));
        }
    }
    std::ranges::stable_sort(found, std::greater<>(), &TriedLever::worth);
    return found;
}

// The pair that saves most, if noticeably more than its better half.
std::optional<TriedLever> best_pair(LeverSearch& search, const std::vector<TriedLever>& singles,
                                    std::size_t most) {
    std::optional<TriedLever> best;
    for (std::size_t i = 0; i < std::min(most, singles.size()); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            if (singles[k].kind() == singles[i].kind()) {
                continue;
            }
            auto pair = search.tried({singles[k].made.front(), singles[i].made.front()});
            if (pair && pair->worth >= singles.front().worth + worth_naming &&
                (!best || pair->worth > best->worth)) {
                best = std::move(pair);
            }
        }
    }
    return best;
}

// Knobs of the strategy itself, alone and together.
void name_knobs(LeverSearch& search, const std::vector<TriedLever>& knobs, std::size_t most,
                Levers& levers) {
    const std::optional<TriedLever> pair = best_pair(search, knobs, most);
    if (pair) {
        levers.together = search.lever(*pair);
    }
    std::optional<LeverKind> named;
    for (const TriedLever& knob : knobs) {
        const bool is_next =
            pair ? std::ranges::find(pair->made, knob.made.front()) != pair->made.end()
                 : levers.alone.size() < 2 && knob.kind() != named;
        if (is_next) {
            named = knob.kind();
            levers.alone.push_back(search.lever(knob));
        }
    }
}

// Four times as many micro-steps, where a reduction costs more than a fifth of the step.
std::optional<TriedLever> accumulating(const Scenario& scenario, LeverSearch& search,
                                       const Prediction& prediction,
                                       const LeverCandidate& candidate) {
    constexpr double noticeable = 0.2;
    const SyncSettings settings = settings_for(scenario.sync);
    const Evaluation& advised = prediction.advised();
    const bool counts = !scenario.sharding && settings.communicates &&
                        !settings.framework.every_micro_step &&
                        static_cast<double>(advised.exposed.count()) >=
                            noticeable * static_cast<double>(advised.step().count());
    return counts ? search.tried({&candidate}) : std::nullopt;
}

}  // namespace

Levers levers_of(const Scenario& scenario, const StepInput& input, const Prediction& prediction) {
    constexpr std::int64_t many_operations = 5'000;
    const std::int64_t operations =
        scenario.step.accumulation *
        (std::ssize(input.workload.forward) + std::ssize(input.workload.backward));
    if (scenario.group.ranks < 2 || !scenario.stragglers.empty()) {
        return {};
    }
    Levers levers;
    LeverSearch search(scenario, input, prediction);
    const std::vector<LeverCandidate> candidates = lever_candidates(scenario);
    std::vector<TriedLever> knobs = singles_of(search, candidates);
    const auto others =
        std::stable_partition(knobs.begin(), knobs.end(), [](const TriedLever& tried) {
            return tried.kind() != LeverKind::without_sharding &&
                   tried.kind() != LeverKind::micro_batch;
        });
    const std::vector<TriedLever> beside(others, knobs.end());
    knobs.erase(others, knobs.end());
    name_knobs(search, knobs, scenario.sharding && operations > many_operations ? 2 : 4, levers);
    for (const TriedLever& other : beside) {
        const bool saves_more =
            levers.alone.empty() ||
            other.saved > levers.together.value_or(levers.alone.front()).typical + worth_naming;
        if (saves_more || other.kind() == LeverKind::without_sharding) {
            levers.others.push_back(search.lever(other));
        }
    }
    const LeverCandidate accumulation = more_micro_steps(scenario);
    if (const auto tried = accumulating(scenario, search, prediction, accumulation)) {
        levers.others.push_back(search.lever(*tried));
    }
    return levers;
}

std::vector<Lever> tuned_knobs(const Scenario& scenario, const StepInput& input,
                               const Prediction& prediction, Tuned tuned) {
    LeverSearch search(scenario, input, prediction);
    std::vector<Lever> levers;
    const auto add = [&](const std::vector<const LeverCandidate*>& made) {
        if (const auto tried = search.outcome(made)) {
            levers.push_back(search.lever(*tried));
        }
    };
    const std::vector<LeverCandidate> candidates = tuning_candidates(scenario, tuned);
    for (const LeverCandidate& candidate : candidates) {
        add({&candidate});
        if (candidate.change.kind == LeverKind::arithmetic) {  // compiled, casts cost less
            add({&candidates.front(), &candidate});
        }
    }
    std::ranges::stable_sort(levers, std::greater<>(), &Lever::typical);
    return levers;
}

}  // namespace bucketwise
