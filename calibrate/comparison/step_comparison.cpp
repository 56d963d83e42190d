#include "calibrate/comparison/step_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "calibrate/fit/compute_fit.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/engine/bucket_planner.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/predict/confidence.h"
#include "sim/text/foreign_text.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

// Attribution simulates whole steps many times.
void check_unrolled(const StepInput& input) {
    constexpr std::int64_t most = 100'000;
    const std::int64_t operations =
        input.step.accumulation *
        static_cast<std::int64_t>(input.workload.forward.size() + input.workload.backward.size());
    if (operations > most) {
        throw InputError("scenario", "", fmt::format("a step of at most {} operations", most),
                         fmt::format("one of {}", operations));
    }
}

void check_bucketed(const Scenario& scenario, const MeasuredRun& run) {
    const std::string_view strategy = name_of(scenario.sync.strategy);
    if (run.steps.front().strategy != strategy) {
        throw InputError(run.file, "",
                         fmt::format("steps of the strategy {}, as in the scenario", strategy),
                         run.steps.front().strategy);
    }
}

void check_collectives(const MeasuredRun& run, const CapComparison& point, const Program& program) {
    if (program.collectives.size() != point.measured.begin_us.size()) {
        throw InputError(
            run.file, "",
            fmt::format("steps with the scenario's {} collectives", program.collectives.size()),
            fmt::format("steps with {}", point.measured.begin_us.size()));
    }
    if (point.predicted.bucket_bytes != point.measured.bucket_bytes) {
        throw InputError(
            run.file, "",
            fmt::format("steps with the buckets of the scenario ({} at a cap of {} bytes)",
                        point.predicted.bucket_bytes.size(),
                        point.measured.cap.value_or(Bytes{0}).count),
            fmt::format("others ({})", point.measured.bucket_bytes.size()));
    }
}

// The run's own record of its scenario.
void check_same_scenario(const Scenario& scenario, const MeasuredRun& run) {
    if (!run.environment || run.environment->scenario.empty()) {
        return;
    }
    const auto no_files = [](const std::string& path) -> std::string {
        throw InputError(path, "", "a scenario with its link written out", "a file's name");
    };
    const Scenario measured =
        parse_scenario(parse_json(run.environment->scenario, run.file), run.file, no_files);
    const auto check = [&](bool same, const char* pointer) {
        if (!same) {
            throw InputError(run.file, pointer, "measurements of the scenario's step", "another's");
        }
    };
    SyncRequest sync = measured.sync;  // caps were varied
    sync.bucket_cap = scenario.sync.bucket_cap;
    check(sync == scenario.sync, "/sync");
    check(measured.step.accumulation == scenario.step.accumulation, "/step/accumulation");
    const Workload workload = step_input(measured).workload;
    const Workload expected = step_input(scenario).workload;
    check(workload.gradients == expected.gradients && workload.readiness == expected.readiness,
          "/workload");
    const auto* model = std::get_if<ModelWorkload>(&measured.workload);
    const auto* expected_model = std::get_if<ModelWorkload>(&scenario.workload);
    check((model == nullptr) == (expected_model == nullptr) &&
              (model == nullptr ||
               (model->model == expected_model->model && model->input == expected_model->input)),
          "/workload");
}

constexpr double standard_errors_of_95_percent = 1.96;

// Rounds differ by more than caps do, and not every cap was measured in every one: how caps differ
// is taken from the rounds that they share with the default, how long they take from all medians.
void pair_by_rounds(std::vector<CapComparison>& points) {
    const auto standard = std::ranges::find_if(
        points, [](const CapComparison& point) { return point.measured.is_default; });
    if (standard == points.end()) {
        return;
    }
    const MeasuredPlans plans = measured_plans(transformed(points, &CapComparison::measured));
    const auto index = static_cast<std::size_t>(standard - points.begin());
    const auto slower = plans.steps.slower_than(plans.plan_of[index]);
    double level = 0;  // logarithm of what the default takes
    double weights = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (const std::optional<double> by = slower[plans.plan_of[i]]) {
            const auto weight = static_cast<double>(points[i].measured.step_us.size());
            level += weight * std::log(points[i].measured_ms / (1 + *by));
            weights += weight;
        }
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (const std::optional<double> by = slower[plans.plan_of[i]]) {
            const double paired_ms = std::exp(level / weights) * (1 + *by);
            const double shift = paired_ms / points[i].measured_ms;
            points[i].measured_ms = paired_ms;
            MedianInterval& interval = points[i].measured_interval_ms;
            interval = {std::min(interval.low * shift, paired_ms),
                        std::max(interval.high * shift, paired_ms)};
        }
    }
}

std::vector<CapComparison> compare_caps(const StepInput& input, const Scenario& scenario,
                                        const MeasuredRun& run) {
    Evaluator evaluator(input, scenario.sync);
    std::vector<CapComparison> points;
    std::vector<SyncSettings> choices;
    for (MeasuredCap& measured : measured_caps(run)) {
        CapComparison point;
        point.measured = std::move(measured);
        choices.push_back(
            settings_of_replay(with_cap(scenario.sync, point.measured.asked_cap()), input));
        point.predicted = evaluator.evaluate(point.measured.asked_cap());
        check_collectives(run, point, evaluator.program(point.measured.asked_cap()));
        point.predicted_ms = to_ms(point.predicted.times.step());
        point.samples = point.measured.step_us.size();
        point.measured_ms = median(point.measured.step_us) / 1e3;
        const MedianInterval us = median_interval(point.measured.step_us);
        point.measured_interval_ms = {us.low / 1e3, us.high / 1e3};
        points.push_back(std::move(point));
    }
    pair_by_rounds(points);
    const IsolatedMeasurements isolated{
        .compute_step_us = compute_step_us(run),
        .all_reduces = link_points(CollectiveKind::all_reduce, {run})};
    for (std::size_t i = 0; i < points.size(); ++i) {
        points[i].attribution =
            attribute(input, choices[i], plan_of(input, choices[i]), points[i].measured, isolated);
    }
    const std::vector<ComparedStep> steps(points.begin(), points.end());
    const auto confidences =
        confidence_of(input, {choices.begin(), choices.end()}, plateau_tolerance,
                      measure_errors(steps, 0).noise_floor / standard_errors_of_95_percent);
    for (std::size_t i = 0; i < points.size(); ++i) {
        points[i].predicted.confidence = confidences[i];
    }
    return points;
}

// An interval contains its own estimate.
void widen_to(double share, std::optional<SlowerBy>& interval) {
    if (interval) {
        interval->middle = share;
        interval->low = std::min(interval->low, share);
        interval->high = std::max(interval->high, share);
    }
}

void judge_chosen(const std::vector<MeasuredCap>& caps, Comparison& comparison) {
    const MeasuredPlans plans = measured_plans(caps);
    std::optional<std::size_t> standard;
    if (comparison.default_cap) {
        standard = plans.plan_of[*comparison.default_cap];
    }
    comparison.decision = judge_decision(plans.steps, plans.plan_of[comparison.chosen], standard);
    comparison.decision.best = plans.first_of[comparison.decision.best];
    widen_to(comparison.regret, comparison.decision.regret);
    widen_to(comparison.gain_over_default, comparison.decision.gain);
}

void judge(const Prediction& prediction, Comparison& comparison) {
    const std::vector<ComparedStep> steps(comparison.points.begin(), comparison.points.end());
    const auto caps = transformed(comparison.points, &CapComparison::measured);
    const AdvisedCap advised = advised_cap(caps, prediction);
    static_cast<ErrorMeasures&>(comparison) = measure_errors(steps, advised.index);
    comparison.advised_was_measured = advised.was_measured;
    comparison.advised_cap = prediction.advised().cap.named();
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (comparison.points[i].measured.is_default) {
            comparison.default_cap = i;
            comparison.gain_over_default =
                steps[i].measured_ms / steps[comparison.chosen].measured_ms - 1;
        }
    }
    judge_chosen(caps, comparison);
}

// For the caps that the verdict is about. The extremes of five samples hold their median with a
// probability of 94 %: no interval of theirs holds it with 95 %.
void note_few_samples(Comparison& comparison) {
    constexpr std::size_t few = 6;
    std::size_t fewest = comparison.points[comparison.chosen].samples;
    for (const std::size_t point :
         {comparison.fastest, comparison.default_cap.value_or(comparison.chosen)}) {
        fewest = std::min(fewest, comparison.points[point].samples);
    }
    if (fewest < few) {
        comparison.notes.push_back(
            fmt::format("of the caps that decide only {} measured: intervals are the extremes of "
                        "so few, which say less than 95 %; {} or more are better",
                        fewest == 1 ? "1 step was" : fmt::format("{} steps were", fewest), few));
    }
}

// --- what if ---

void scale_bandwidth(LinkParameters& link, std::int64_t factor) {
    for_each_segment(link, [&](Segment& segment) { segment.bandwidth.count *= factor; });
    for (LinkParameters& tier : link.tiers) {
        scale_bandwidth(tier, factor);
    }
}

void remove_latency(LinkParameters& link) {
    link.launch = link.meeting = link.message = Duration{0};
    link.all_gather.launch = link.reduce_scatter.launch = Duration{0};
    for_each_segment(link, [](Segment& segment) { segment.latency = Duration{0}; });
    for (LinkParameters& tier : link.tiers) {
        remove_latency(tier);
    }
}

void remove_interference(LinkParameters& link) {
    link.interference.clear();
    link.all_gather.interference.clear();
    link.reduce_scatter.interference.clear();
}

// Each change at its own best of these caps.
std::vector<ChangedMachine> what_if(const StepInput& input, const Scenario& scenario,
                                    const std::vector<CapComparison>& points) {
    struct Change {
        const char* name;
        void (*make)(StepInput& input);
    };
    constexpr std::array<Change, 5> changes{
        {{"as it is", [](StepInput& /*input*/) {}},
         {"twice the bandwidth", [](StepInput& faster) { scale_bandwidth(faster.link, 2); }},
         {"no latency", [](StepInput& prompt) { remove_latency(prompt.link); }},
         {"no interference", [](StepInput& calm) { remove_interference(calm.link); }},
         {"free communication", [](StepInput& alone) {
              alone.group = {};  // one rank communicates with nobody
              remove_latency(alone.link);
              remove_interference(alone.link);
          }}}};
    std::vector<ChangedMachine> results;
    for (const auto& [name, make] : changes) {
        StepInput changed = input;
        make(changed);
        Evaluator evaluator(changed, scenario.sync);
        ChangedMachine& result = results.emplace_back();
        result.change = name;
        for (const CapComparison& point : points) {
            const double ms = to_ms(evaluator.evaluate(point.measured.asked_cap()).times.step());
            if (&point == &points.front() || ms < result.step_ms) {
                result.step_ms = ms;
                result.cap = point.measured.cap;
            }
        }
    }
    return results;
}

// --- pictures ---

std::string label_of(const Collective& collective) {
    return collective.has_bucket()   ? fmt::format("bucket {}", *collective.bucket() + 1)
           : collective.statistics() ? std::string("statistics")
                                     : std::string(name_of(collective.kind));
}

StepPicture predicted_picture(const Program& program, const StepLoop& loop) {
    const Simulation simulation = settled_simulation(program, loop);
    StepPicture picture;
    picture.step_ms = to_ms(simulation.ranks.front().step());
    std::vector<PictureSpan>& phases = picture.computing;
    for (const Span& span : simulation.timeline.spans) {
        const auto subject = static_cast<std::size_t>(span.subject);
        if (span.track == Track::communication) {
            picture.communicating.push_back(
                {label_of(program.collectives[subject]), to_ms(span.start), to_ms(span.end)});
            continue;
        }
        if (span.track != Track::compute) {
            continue;
        }
        const Phase phase = program.instructions[subject].phase;
        const std::string what = phase == Phase::forward    ? "forward"
                                 : phase == Phase::backward ? "backward"
                                                            : "optimizer";
        // One span per phase, interrupted only by gaps that can be seen, or a picture would be
        // thousands of slivers.
        constexpr double visible = 0.003;  // of the step
        if (!phases.empty() && phases.back().what == what &&
            phases.back().end_ms + visible * picture.step_ms >= to_ms(span.start)) {
            phases.back().end_ms = to_ms(span.end);
        } else {
            phases.push_back({what, to_ms(span.start), to_ms(span.end)});
        }
    }
    return picture;
}

// The step of medians: forward, then backward as far as rank 0 computed, then the optimizer at the
// end.
StepPicture measured_picture(const MeasuredCap& measured, const Program& program) {
    StepPicture picture;
    const double step_us = measured.forward_us + measured.backward_us + measured.optimizer_us;
    const double waiting_us = std::max(step_us - measured.computing_us, 0.0);
    const double backward_end_us =
        std::max(measured.forward_us + measured.backward_us - waiting_us, measured.forward_us);
    picture.step_ms = step_us / 1e3;
    picture.computing = {{"forward", 0, measured.forward_us / 1e3},
                         {"backward", measured.forward_us / 1e3, backward_end_us / 1e3},
                         {"optimizer", (step_us - measured.optimizer_us) / 1e3, step_us / 1e3}};
    for (std::size_t i = 0; i < measured.begin_us.size(); ++i) {
        picture.communicating.push_back({label_of(program.collectives[i]),
                                         measured.begin_us[i] / 1e3, measured.end_us[i] / 1e3});
    }
    return picture;
}

}  // namespace

MeasuredPlans measured_plans(const std::vector<MeasuredCap>& caps) {
    std::vector<std::size_t> plan_of;
    std::vector<std::size_t> first_of;
    for (std::size_t cap = 0; cap < caps.size(); ++cap) {
        const auto same = std::ranges::find_if(first_of, [&](std::size_t first) {
            return caps[first].bucket_bytes == caps[cap].bucket_bytes;
        });
        plan_of.push_back(static_cast<std::size_t>(same - first_of.begin()));
        if (same == first_of.end()) {
            first_of.push_back(cap);
        }
    }
    // Several samples of a plan in one round count as their mean.
    using Samples = std::map<std::int64_t, std::vector<double>>;
    std::vector<Samples> by_round(first_of.size());
    std::set<std::int64_t> measured_rounds;
    for (std::size_t cap = 0; cap < caps.size(); ++cap) {
        for (std::size_t i = 0; i < caps[cap].step_us.size(); ++i) {
            by_round[plan_of[cap]][caps[cap].rounds[i]].push_back(caps[cap].step_us[i]);
            measured_rounds.insert(caps[cap].rounds[i]);
        }
    }
    std::vector<std::vector<std::optional<double>>> steps(first_of.size());
    for (std::size_t plan = 0; plan < first_of.size(); ++plan) {
        for (const std::int64_t round : measured_rounds) {
            const auto found = by_round[plan].find(round);
            steps[plan].push_back(
                found == by_round[plan].end() ? std::nullopt : std::optional(mean(found->second)));
        }
    }
    return {PairedSteps(steps), std::move(plan_of), std::move(first_of)};
}

AdvisedCap advised_cap(const std::vector<MeasuredCap>& caps, const Prediction& prediction) {
    const Evaluation& advised = prediction.advised();
    const auto is_advised = [&](const MeasuredCap& cap) {
        return cap.bucket_bytes == advised.bucket_bytes;
    };
    const auto same = std::ranges::find_if(caps, is_advised);
    if (same != caps.end()) {
        return {static_cast<std::size_t>(same - caps.begin()), true};
    }
    const auto octaves = [&](const MeasuredCap& cap) {
        const auto size = [](const std::optional<Bytes>& of) {
            return static_cast<double>(of.value_or(default_bucket_cap).count);
        };
        return std::abs(std::log2(size(cap.cap) / size(advised.cap.size())));
    };
    const auto nearest = std::ranges::min_element(caps, {}, octaves);
    return {static_cast<std::size_t>(nearest - caps.begin()), false};
}

bool is_noise_known(const Comparison& c) {
    constexpr double fewest = 3;
    return median_of(c.points, [](const CapComparison& point) {
               return static_cast<double>(point.samples);
           }) >= fewest;
}

Verdict error_verdict(const Comparison& c) {
    if (!is_noise_known(c)) {
        return Verdict::inconclusive;
    }
    return c.mape <= mape_goal       ? Verdict::held
           : c.mape <= c.noise_floor ? Verdict::inconclusive
                                     : Verdict::missed;
}

Verdict decision_verdict(const Comparison& c) {
    constexpr double least_correlation = 0.5;
    const auto [least, most] =
        std::ranges::minmax_element(c.points, {}, &CapComparison::measured_ms);
    const bool caps_differ = most->measured_ms > (1 + c.noise_floor) * least->measured_ms;
    const bool by_luck = c.rank_correlation < least_correlation && caps_differ;
    return c.decision.verdict == Verdict::held && by_luck ? Verdict::inconclusive
                                                          : c.decision.verdict;
}

Comparison compare_steps(const Scenario& scenario, const MeasuredRun& run,
                         const Prediction& prediction) {
    Comparison comparison;
    set_head(scenario, run, comparison);
    check_bucketed(scenario, run);
    check_same_scenario(scenario, run);
    const StepInput input = step_input(scenario);
    check_unrolled(input);
    comparison.strategy = scenario.sync.strategy;
    comparison.shared_gpu = run.transport.shared_gpu;
    if (run.environment) {
        constexpr std::size_t longest_command = 4000;
        comparison.command =
            shown_line(shell_line(passed_on_command(run.environment->command)), longest_command);
    }
    comparison.points = compare_caps(input, scenario, run);
    judge(prediction, comparison);
    comparison.reasons_to_withhold = reasons_to_withhold(scenario);
    for (const CapComparison& point : comparison.points) {
        for (const auto* samples :
             {&point.measured.step_us, &point.measured.free_communication_us}) {
            comparison.measuring_s += std::accumulate(samples->begin(), samples->end(), 0.0) / 1e6;
        }
    }
    note_few_samples(comparison);
    comparison.what_if = what_if(input, scenario, comparison.points);
    const MeasuredCap& chosen = comparison.points[comparison.chosen].measured;
    const Program program = Evaluator(input, scenario.sync).program(chosen.asked_cap());
    comparison.predicted_picture =
        predicted_picture(program, loop_of(input, settings_of_replay(scenario.sync, input)));
    comparison.measured_picture = measured_picture(chosen, program);
    return comparison;
}

}  // namespace bucketwise
