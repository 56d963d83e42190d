#include "sim/predict/prediction.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

std::vector<Evaluation> evaluate_listed(Evaluator& evaluator, std::vector<Bytes> caps,
                                        const Progress& progress) {
    std::sort(caps.begin(), caps.end());
    caps.erase(std::unique(caps.begin(), caps.end()), caps.end());
    std::vector<Evaluation> sweep;
    for (const Bytes cap : caps) {
        sweep.push_back(evaluator.evaluate(cap));
        progress(static_cast<double>(sweep.size()) / static_cast<double>(caps.size()));
    }
    return sweep;
}

std::vector<Evaluation> evaluate_every_plan(Evaluator& evaluator, double growth, Bytes total,
                                            const Progress& progress) {
    std::vector<Evaluation> sweep;
    BucketPlan last;
    const double full = std::log(static_cast<double>(total.count) + 1);
    walk_plans(evaluator.least_cap(), growth, [&](Bytes cap) {
        BucketPlan plan = evaluator.plan(cap);
        progress(std::min(std::log(static_cast<double>(cap.count)) / full, 1.0));
        // A last bucket that is full and one that is left open are the same plan.
        const CapRange same = plan.same_plan;
        if (!sweep.empty() && plan.is_same_step(last)) {
            sweep.back().same_plan.highest = same.highest;
        } else {
            sweep.push_back(evaluator.evaluate(cap, plan));
            last = std::move(plan);
        }
        return same;
    });
    for (Evaluation& evaluation : sweep) {
        evaluation.cap = roundest_cap(evaluation.same_plan);
    }
    return sweep;
}

bool within_plateau(Duration step, Duration fastest) {
    return static_cast<double>(step.count()) <=
           static_cast<double>(fastest.count()) * (1 + plateau_tolerance);
}

bool cannot_be_told(const Evaluation& evaluation) {
    return evaluation.confidence && !evaluation.confidence->regret.told_from_best;
}

// Also if the parameters are too uncertain to tell.
bool within_plateau(const Evaluation& evaluation, Duration fastest) {
    return within_plateau(evaluation.times.step(), fastest) || cannot_be_told(evaluation);
}

// Consecutive caps with steps within the tolerance of the fastest.
struct Run {
    std::size_t first = 0;
    std::size_t last = 0;
};

int digits(const Evaluation& row) {
    return digits_to_type(row.cap.size().value_or(default_bucket_cap));
}

double cap_of(const Evaluation& e) {
    return static_cast<double>(e.cap.size().value_or(default_bucket_cap).count);
}

double width_of(const std::vector<Evaluation>& sweep, const Run& run) {
    return cap_of(sweep[run.last]) - cap_of(sweep[run.first]);
}

// Whether each row is within the plateau. A row without a confidence is, too, if the nearest rows
// with one on both sides are statistically indistinguishable from the best, and its step is from
// theirs.
std::vector<char> plateau_rows(const std::vector<Evaluation>& sweep, Duration fastest) {
    std::vector<char> within;
    for (const Evaluation& evaluation : sweep) {
        within.push_back(within_plateau(evaluation, fastest) ? 1 : 0);
    }
    std::optional<std::size_t> last_sure;
    for (std::size_t i = 0; i < sweep.size(); ++i) {
        if (!sweep[i].confidence) {
            continue;
        }
        if (last_sure && cannot_be_told(sweep[*last_sure]) && cannot_be_told(sweep[i])) {
            const Duration slower = std::max(sweep[*last_sure].step(), sweep[i].step());
            for (std::size_t row = *last_sure + 1; row < i; ++row) {
                if (within_plateau(sweep[row].step(), slower)) {
                    within[row] = 1;
                }
            }
        }
        last_sure = i;
    }
    return within;
}

std::vector<Run> runs_within_plateau(const std::vector<Evaluation>& sweep, Duration fastest) {
    const std::vector<char> within = plateau_rows(sweep, fastest);
    std::vector<Run> runs;
    for (std::size_t i = 0; i < sweep.size(); ++i) {
        if (within[i] == 0) {
            continue;
        }
        if (runs.empty() || runs.back().last + 1 != i) {
            runs.push_back({i, i});
        }
        runs.back().last = i;
    }
    return runs;
}

// The cap, among those of a run with exactly the fastest step, that is shortest to type in the
// middle half of the run, where neighbours are no slower; otherwise the nearest to the middle.
std::optional<std::size_t> most_robust(const std::vector<Evaluation>& sweep, const Run& run,
                                       Duration fastest) {
    const double middle = (cap_of(sweep[run.first]) + cap_of(sweep[run.last])) / 2;
    const auto rank = [&](std::size_t i) {
        const double off = std::abs(cap_of(sweep[i]) - middle);
        const bool central = off <= width_of(sweep, run) / 4;
        return std::tuple(!central, central ? digits(sweep[i]) : 0, off);
    };
    std::optional<std::size_t> chosen;
    for (std::size_t i = run.first; i <= run.last; ++i) {
        if (sweep[i].times.step() == fastest && (!chosen || rank(i) < rank(*chosen))) {
            chosen = i;
        }
    }
    return chosen;
}

// --- confidence ---

constexpr std::size_t most_uncertain_rows = 12;
constexpr double worth_a_closer_look = 0.05;  // over the fastest step

Duration fastest_step(const std::vector<Evaluation>& sweep) {
    return std::ranges::min_element(sweep, {}, &Evaluation::step)->step();
}

// At most `most` of the rising `rows`: in each stretch of caps the one that is shortest to type.
std::vector<std::size_t> thinned(const std::vector<Evaluation>& sweep,
                                 std::vector<std::size_t> rows, std::size_t most) {
    if (rows.size() <= most) {
        return rows;
    }
    const double first = std::log(cap_of(sweep[rows.front()]));
    const double width = std::log(cap_of(sweep[rows.back()])) - first;
    std::vector<std::size_t> kept;
    std::size_t last_stretch = most;
    for (const std::size_t row : rows) {
        const double along = (std::log(cap_of(sweep[row])) - first) / width;
        const auto stretch = static_cast<std::size_t>(along * static_cast<double>(most - 1));
        if (stretch != last_stretch) {
            kept.push_back(row);
        } else if (digits(sweep[row]) < digits(sweep[kept.back()])) {
            kept.back() = row;
        }
        last_stretch = stretch;
    }
    return kept;
}

// The fastest row, the ends, and up to 12 rows close to the fastest.
std::set<std::size_t> rows_to_be_sure_of(const std::vector<Evaluation>& sweep) {
    const auto fastest = static_cast<std::size_t>(
        std::ranges::min_element(sweep, {}, &Evaluation::step) - sweep.begin());
    std::vector<std::size_t> close;
    for (std::size_t i = 0; i < sweep.size(); ++i) {
        if (sweep.size() <= most_uncertain_rows ||
            static_cast<double>(sweep[i].step().count()) <=
                (1 + worth_a_closer_look) * static_cast<double>(sweep[fastest].step().count())) {
            close.push_back(i);
        }
    }
    std::set<std::size_t> rows{0, fastest, sweep.size() - 1};
    for (const std::size_t row : thinned(sweep, std::move(close), most_uncertain_rows)) {
        rows.insert(row);
    }
    return rows;
}

// Sets the confidence of the rows that matter, and of the default.
void add_confidence(const StepInput& input, const SyncRequest& request, Prediction& prediction) {
    std::vector<Evaluation*> rows;
    std::vector<Setting> choices;
    std::vector<SyncSettings> buckets;
    std::set<std::size_t> drawn = rows_to_be_sure_of(prediction.sweep);
    if (input.link.assumes_interference) {
        drawn.insert(NamedCaps(input, request, prediction.sweep, prediction.default_cap)
                         .fastest_of_usual_size());
    }
    for (const std::size_t row : drawn) {
        rows.push_back(&prediction.sweep[row]);
        buckets.push_back(settings_for(with_cap(request, rows.back()->cap), input));
        choices.emplace_back(buckets.back());
    }
    rows.push_back(&prediction.default_cap);
    buckets.push_back(settings_for(without_caps(request), input));
    choices.emplace_back(buckets.back());
    const std::vector<StepConfidence> confidences =
        confidence_of(input, choices, plateau_tolerance, 0, choices.size() - 1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i]->confidence = confidences[i];
    }
    if (input.link.assumes_interference) {
        const auto saved = savings_at_ends(input, buckets, buckets.size() - 1);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            rows[i]->saved_at_ends = saved[i];
        }
    }
}

// The fastest step; of equal ones the cap furthest from slower steps.
void choose_best(const StepInput& input, const SyncRequest& request, Prediction& prediction) {
    const std::vector<Evaluation>& sweep = prediction.sweep;
    const Duration fastest = fastest_step(sweep);
    const std::vector<Run> runs = runs_within_plateau(sweep, fastest);
    double widest = -1;
    for (const Run& run : runs) {
        const std::optional<std::size_t> chosen = most_robust(sweep, run, fastest);
        if (chosen && width_of(sweep, run) > widest) {
            widest = width_of(sweep, run);
            prediction.best = *chosen;
        }
    }
    const NamedCaps named(input, request, sweep, prediction.default_cap);
    prediction.doubt = named.doubt(prediction.best);
    prediction.best = named.best(prediction.best);
    prediction.plateau_low = prediction.plateau_high = prediction.best;
    for (const Run& run : runs) {
        if (run.first <= prediction.best && prediction.best <= run.last) {
            prediction.plateau_low = run.first;
            prediction.plateau_high = run.last;
        }
    }
    prediction.plateau_high = named.last(prediction.best, prediction.plateau_high);
}

// Whether the expected gain of naming a cap is too small.
bool keeps_default(const Prediction& prediction) {
    const Evaluation& chosen = prediction.chosen();
    const Evaluation& left = prediction.default_cap;
    if (!prediction.default_is_fastest && hangs_on_overlap(chosen)) {
        return true;
    }
    return chosen.confidence && left.confidence
               ? left.confidence->regret.expected <=
                     chosen.confidence->regret.expected + plateau_tolerance
               : within_plateau(left.step(), chosen.step());
}

// The step with DDP and its default caps, for strategies that do not overlap as DDP does.
std::optional<Evaluation> step_with_ddp(const StepInput& input, const SyncRequest& request) {
    if (is_ddp(request.strategy) || framework_of(request.strategy) ||
        !settings_for(request).communicates || input.group.ranks < 2) {
        return std::nullopt;
    }
    SyncRequest ddp = without_caps(request);
    ddp.strategy = Strategy::ddp;
    return Evaluator(input, ddp).evaluate(Cap());
}

// --- notes ---

void note_assumed_interference(const StepInput& input, Prediction& prediction) {
    if (!input.link.assumes_interference) {
        return;
    }
    const InterferenceSegment& large = input.link.interference.back();
    const auto factor = [](std::int64_t ppm) { return static_cast<double>(ppm) * 1e-6; };
    prediction.notes.push_back(fmt::format(
        "link {}: nobody measured what computing and collectives cost each other. Assumed for "
        "large "
        "collectives: computing beside one takes {:.2f} times as long (error {:.2f}), the "
        "collective "
        "{:.2f} times as long (error {:.2f}), and it begins {:.0f} us late. \"interference\": "
        "\"none\" in the link turns that off",
        input.link.name, factor(large.slowdown.compute_slowdown_ppm),
        large.errors->compute_slowdown, factor(large.slowdown.communication_slowdown_ppm),
        large.errors->communication_slowdown, to_us(large.slowdown.start_delay)));
}

void note_pieces(const Evaluator& evaluator, Prediction& prediction) {
    const std::optional<PieceReadiness> at_default = evaluator.plan(Cap()).readiness;
    const std::optional<PieceReadiness> advised = evaluator.plan(prediction.chosen().cap).readiness;
    if (!at_default || !advised) {
        return;
    }
    prediction.notes.push_back(fmt::format(
        "torch.compile: backward runs in {} pieces of the graph with the best cap, in {} with the "
        "default; the gradients of each become ready together",
        advised->pieces, at_default->pieces));
}

// Notes all-reduces of sizes outside the link's measurement.
void note_extrapolation(const StepInput& input, Prediction& prediction) {
    const Provenance& from = input.link.provenance;
    if (!from.smallest_message || !from.largest_message) {
        return;
    }
    std::vector<Bytes> sizes = prediction.default_cap.bucket_bytes;
    const std::vector<Bytes>& best = prediction.sweep[prediction.best].bucket_bytes;
    sizes.insert(sizes.end(), best.begin(), best.end());
    const auto beyond = std::find_if(sizes.begin(), sizes.end(), [&](Bytes size) {
        return size < *from.smallest_message || size > *from.largest_message;
    });
    if (beyond != sizes.end()) {
        prediction.notes.push_back(fmt::format(
            "link \"{}\" was measured with messages of {} to {} bytes; an all-reduce of {} is an "
            "extrapolation",
            input.link.name, from.smallest_message->count, from.largest_message->count,
            beyond->count));
    }
}

}  // namespace

std::vector<std::size_t> rows_that_matter(const Prediction& prediction) {
    std::set<std::size_t> rows{prediction.best};
    if (prediction.sweep.front().sharded) {
        for (std::size_t i = 0; i < prediction.sweep.size(); ++i) {
            if (prediction.sweep[i].confidence) {
                rows.insert(i);
            }
        }
    } else {
        rows.merge(rows_to_be_sure_of(prediction.sweep));
    }
    return {rows.begin(), rows.end()};
}

const Evaluation& Prediction::fastest() const {
    const auto least = std::ranges::min_element(sweep, {}, &Evaluation::step);
    return default_cap.step() < least->step() ? default_cap : *least;
}

Prediction predict(const StepInput& input, const SyncRequest& request,
                   const std::vector<Bytes>& caps, const Progress& progress) {
    Evaluator evaluator(input, request);
    Prediction prediction;
    if (!has_cap(request)) {
        prediction.sweep.push_back(evaluator.evaluate(Cap::none()));
        prediction.every_plan = true;
    } else if (!caps.empty()) {
        prediction.sweep = evaluate_listed(evaluator, caps, progress);
    } else {
        const double growth = growth_of_caps(input.workload.gradients.size());
        prediction.every_plan = growth == 1.0;
        prediction.sweep =
            evaluate_every_plan(evaluator, growth, input.workload.gradient_bytes(), progress);
        if (!prediction.every_plan) {
            prediction.notes.emplace_back(
                "more than 2,000 gradients: caps rise by at least 1 % between plans, some plans "
                "are left out");
        }
    }
    Evaluator defaults(input, without_caps(request));
    prediction.default_cap = defaults.evaluate(Cap());
    if (has_cap(request) && names_caps(request)) {
        prediction.configured = evaluator.evaluate(request.bucket_cap);
    }
    if (has_cap(request)) {
        add_confidence(input, request, prediction);
    }
    choose_best(input, request, prediction);
    note_assumed_interference(input, prediction);
    note_pieces(evaluator, prediction);
    note_extrapolation(input, prediction);
    const Duration default_step = prediction.default_cap.times.step();
    prediction.default_is_fastest =
        caps.empty() && has_cap(request) && default_step < fastest_step(prediction.sweep);
    prediction.keep_default = keeps_default(prediction);
    if (!prediction.keep_default) {
        prediction.doubt.reset();
    }
    prediction.with_ddp = step_with_ddp(input, request);
    const bool leaves_default = prediction.keep_default || prediction.default_is_fastest;
    prediction.binding = (leaves_default ? defaults : evaluator).binding(prediction.advised().cap);
    return prediction;
}

}  // namespace bucketwise
