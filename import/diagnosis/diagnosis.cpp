#include "import/diagnosis/diagnosis.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "import/diagnosis/evidence.h"
#include "import/diagnosis/mended_step.h"
#include "import/replay/changed_step.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"

namespace bucketwise {
namespace {

// How far apart half of the steps are.
Duration spread_of(const Steps& steps) {
    std::vector<Duration> lengths;
    for (const TracedStep* const step : steps) {
        lengths.push_back(step->length);
    }
    std::ranges::sort(lengths);
    constexpr std::size_t quarters = 4;
    return lengths[lengths.size() * 3 / quarters] - lengths[lengths.size() / quarters];
}

// Two standard errors of a step's length, as half of normal values lie within 1.35 of the
// deviation.
Duration uncertain(const Steps& steps) {
    constexpr double normal_95 = 1.96;
    constexpr double quartiles_apart = 1.35;
    return scaled(spread_of(steps),
                  normal_95 / quartiles_apart / std::sqrt(static_cast<double>(steps.size())));
}

// The least cost that stands out from the differences between steps.
Duration noticeable_cost(const StepSummary& traced, Duration spread,
                         const std::optional<Duration>& sound) {
    constexpr double least = 0.05;  // of a step
    return std::max(scaled(std::min(traced.step, sound.value_or(traced.step)), least), spread);
}

// The time of a step beyond what is expected; not known without an expected step.
struct Excess {
    Duration left = Duration::max();  // of its causes
    // Whether it may as well be an error of presets' times.
    bool may_be_priors = false;
};

// Told by times, of ranks and hosts that wait or against what is expected; not by a setting.
bool is_told_by_times(TraceCause cause) {
    return cause >= TraceCause::late_rank;
}

bool is_told_by_expected_times(TraceCause cause) {
    return cause >= TraceCause::slow_link;
}

// Mends the causes one after another, each time the one that saves most. A cause told by times
// costs no more than the step took beyond what is expected, less the causes before it.
std::vector<DiagnosedCause> causes_of(MendedSteps& steps, bool same_buckets, Duration noticeable,
                                      Excess excess, Mended& mended) {
    // The first in TraceCause's order is taken where several explain about as much.
    constexpr double as_much = 0.85;
    std::vector<TraceCause> left;
    for (std::size_t i = 0; i < names_of<TraceCause>.size(); ++i) {
        const auto cause = static_cast<TraceCause>(i);
        // Other buckets than the traced ones say nothing about their size.
        const bool is_prior = excess.may_be_priors && is_told_by_expected_times(cause);
        if (steps.may_be(cause) && !is_prior &&
            (same_buckets || cause != TraceCause::small_buckets)) {
            left.push_back(cause);
        }
    }
    std::vector<DiagnosedCause> causes;
    Duration step = steps.length({});
    while (!left.empty()) {
        std::vector<Duration> lengths;
        for (const TraceCause cause : left) {
            Mended more = mended;
            more.insert(cause);
            lengths.push_back(steps.length(more));
        }
        const Duration most = step - *std::ranges::min_element(lengths);
        if (most < noticeable) {
            break;
        }
        std::size_t chosen = 0;
        while (share(step - lengths[chosen], most) < as_much) {
            ++chosen;
        }
        const TraceCause kind = left[chosen];
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(chosen));
        Duration costs = std::min(step - lengths[chosen], steps.most_costs(kind));
        costs = is_told_by_times(kind) ? std::min(costs, excess.left) : costs;
        if (costs < noticeable) {
            continue;
        }
        causes.push_back({.kind = kind, .costs = costs, .without = step - costs});
        describe(steps, mended, causes.back());
        mended.insert(kind);
        step = lengths[chosen];
        excess.left -= costs;
    }
    return causes;
}

// Adds the cause of the replay's error, where the trace shows one: collectives that run alone, or
// waits for ranks without a trace.
void add_what_is_left(const Replay& replayed, const TraceImport& imported, Duration noticeable,
                      std::vector<DiagnosedCause>& causes) {
    // More than a replay is usually off by.
    constexpr double beyond_replays = 0.1;
    const Duration left = replayed.traced.step - replayed.step;
    if (left < noticeable || share(left, replayed.traced.step) < beyond_replays ||
        !(replayed.same_buckets || replayed.collectives.empty())) {
        return;
    }
    const Overlapped overlapped = overlap_of(imported, replayed);
    const Duration beyond =
        replayed.traced.account.communicating - replayed.simulated.account.communicating;
    if (beyond < noticeable) {
        return;
    }
    constexpr double hardly_any = 0.15;
    constexpr double much_more = 0.3;
    const bool alone =
        overlapped.traced < hardly_any && overlapped.simulated - overlapped.traced > much_more;
    if (!alone && std::ssize(imported.run->ranks) >= imported.ranks) {
        return;  // all ranks were traced: the one that they wait for is replayed
    }
    DiagnosedCause cause{.kind = alone ? TraceCause::no_overlap : TraceCause::late_rank,
                         .costs = std::min(beyond, left),
                         .without = replayed.step};
    describe_rest(overlapped, imported, cause);
    causes.insert(std::ranges::upper_bound(causes, cause.costs, std::ranges::greater{},
                                           &DiagnosedCause::costs),
                  std::move(cause));
}

// Adds up the errors of the replay, of the steps and of presets: nothing tells their signs.
void set_range(const Replay& replayed, const Steps& steps, const std::optional<StepRange>& presets,
               Diagnosis& diagnosis) {
    constexpr double least = 0.01;
    const StepSummary& traced = replayed.traced;
    const double error = std::hypot(least, share(uncertain(steps), traced.step), replayed.error());
    const Duration expected = diagnosis.expected;
    const auto with = [&](Duration end) {
        return scaled(expected, std::hypot(error, presets ? share(end - expected, expected) : 0));
    };
    diagnosis.least = std::max(expected - with(presets ? presets->low : expected), Duration{0});
    diagnosis.most = expected + with(presets ? presets->high : expected);
}

}  // namespace

Duration Diagnosis::unexplained() const {
    Duration left = traced - expected;
    for (const DiagnosedCause& cause : causes) {
        left -= cause.costs;
    }
    return left;
}

double Diagnosis::longer() const {
    return share(traced - expected, expected);
}

Diagnosed diagnose(const std::vector<TracedRank>& ranks, const TraceImportRequest& request,
                   const Sound& sound) {
    MendedSteps steps(ranks, request, sound);
    const MendedSteps::Run& traced = steps.run({});
    const Replay replayed = replay(traced.imported, traced.scenario);
    Diagnosed result;
    Diagnosis& diagnosis = result.diagnosis;
    diagnosis.traced = replayed.traced.step;
    diagnosis.replayed = replayed.step;
    diagnosis.compared = sound.expected || sound.link;
    diagnosis.binds = binds_text(traced.imported, replayed);
    const std::optional<Duration> sound_length = steps.sound_length();
    diagnosis.noticeable =
        noticeable_cost(replayed.traced, uncertain(traced.imported.run->alike()), sound_length);
    const auto expect = [&](Duration length) {
        diagnosis.expected = length;
        set_range(replayed, traced.imported.run->alike(), steps.sound_range(), diagnosis);
    };
    if (sound_length) {
        expect(*sound_length);
    }
    Mended mended;
    const auto poor = replay_caveat(replayed.step, replayed.traced.step, "the trace");
    add_what_is_left(replayed, traced.imported, diagnosis.noticeable, diagnosis.causes);
    // A replay that is off for a known reason withholds nothing.
    if (poor && poor->withholds && diagnosis.causes.empty()) {
        diagnosis.withheld = poor->text;
    } else {
        Excess excess;
        if (sound_length) {
            excess = {diagnosis.traced - diagnosis.least,
                      steps.sound_range() && diagnosis.traced <= diagnosis.most};
        }
        for (DiagnosedCause& cause : diagnosis.causes) {
            cause.costs = std::min(cause.costs, excess.left);
            excess.left -= cause.costs;
        }
        std::erase_if(diagnosis.causes, [&](const DiagnosedCause& cause) {
            return cause.costs < diagnosis.noticeable;
        });
        std::vector<DiagnosedCause> causes =
            causes_of(steps, replayed.same_buckets || traced.imported.sharding,
                      diagnosis.noticeable, excess, mended);
        causes.insert(causes.end(), diagnosis.causes.begin(), diagnosis.causes.end());
        std::ranges::stable_sort(causes, std::ranges::greater{}, &DiagnosedCause::costs);
        diagnosis.causes = std::move(causes);
    }
    if (!sound_length) {
        expect(steps.length(mended));
    }
    result.mended = steps.slowest(mended);
    result.scenario = traced.scenario;
    result.traced = traced_process(traced.imported);
    return result;
}

}  // namespace bucketwise
