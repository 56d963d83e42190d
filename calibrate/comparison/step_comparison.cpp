#include "calibrate/comparison/step_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "calibrate/comparison/advised_setting.h"
#include "calibrate/fit/compute_fit.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/predict/confidence.h"
#include "sim/report/sweep_table.h"
#include "sim/report/verdict.h"
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

std::string machine_of(const MeasuredRun& run) {
    if (!run.environment) {
        return "unknown machine";
    }
    const EnvironmentRecord& e = *run.environment;
    return fmt::format("{}{}{}, {} cores, {} {} on {} ranks{}{}, {}, {}", e.gpu,
                       e.gpu.empty() ? "" : "; ", e.machine.cpu, e.machine.cores,
                       run.transport.backend, run.transport.algorithm, run.transport.ranks,
                       run.transport.shared_gpu ? " of one shared GPU" : "",
                       e.link_rate.empty() ? "" : ", links of " + e.link_rate, e.machine.kernel,
                       e.date.substr(0, 10));
}

void check_steps(const Scenario& scenario, const MeasuredRun& run) {
    if (run.steps.empty()) {
        throw InputError(run.file, "", "measured steps", "none");
    }
    if (run.transport.ranks != scenario.group.ranks) {
        throw InputError(run.file, "",
                         fmt::format("steps of {} ranks, as in the scenario", scenario.group.ranks),
                         fmt::format("steps of {}", run.transport.ranks));
    }
    const std::string_view strategy = strategy_of(scenario);
    for (const StepRecord& step : run.steps) {
        if (step.strategy != strategy ||
            step.sharding.has_value() != scenario.sharding.has_value()) {
            throw InputError(run.file, "",
                             fmt::format("steps of the strategy {}, as in the scenario", strategy),
                             step.strategy);
        }
    }
}

void check_collectives(const MeasuredRun& run, const SettingComparison& point,
                       const Program& program) {
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
    const Scenario measured = parse_scenario(parse_json(run.environment->scenario, run.file),
                                             run.file, no_files, StrategyKinds::all);
    const auto check = [&](bool same, const char* pointer) {
        if (!same) {
            throw InputError(run.file, pointer, "measurements of the scenario's step", "another's");
        }
    };
    SyncRequest sync = measured.sync;  // caps were varied
    sync.bucket_cap = scenario.sync.bucket_cap;
    check(sync == scenario.sync, "/sync");
    check(measured.step.accumulation == scenario.step.accumulation, "/step/accumulation");
    const Workload workload = compared_input(measured, run).workload;
    const Workload expected = compared_input(scenario, run).workload;
    check(workload.gradients == expected.gradients && workload.readiness == expected.readiness,
          "/workload");
    const auto* model = std::get_if<ModelWorkload>(&measured.workload);
    const auto* expected_model = std::get_if<ModelWorkload>(&scenario.workload);
    check((model == nullptr) == (expected_model == nullptr) &&
              (model == nullptr ||
               (model->model == expected_model->model && model->input == expected_model->input)),
          "/workload");
}

std::optional<std::size_t> default_among(const std::vector<SettingComparison>& points) {
    const auto found = std::ranges::find_if(
        points, [](const SettingComparison& point) { return point.measured.is_default; });
    return found == points.end() ? std::nullopt
                                 : std::optional(static_cast<std::size_t>(found - points.begin()));
}

// The samples of every plan, paired by round. Points with one plan are one, and `plan_of` says
// which.
struct MeasuredPlans {
    PairedSteps steps;
    std::vector<std::size_t> plan_of;   // by point
    std::vector<std::size_t> first_of;  // by plan: a point
};

MeasuredPlans measured_plans(const std::vector<SettingComparison>& points) {
    std::vector<std::size_t> plan_of;
    std::vector<std::size_t> first_of;
    for (std::size_t point = 0; point < points.size(); ++point) {
        const auto same = std::ranges::find_if(first_of, [&](std::size_t first) {
            return points[first].measured.has_plan_of(points[point].measured);
        });
        plan_of.push_back(static_cast<std::size_t>(same - first_of.begin()));
        if (same == first_of.end()) {
            first_of.push_back(point);
        }
    }
    // Several samples of a plan in one round count as their mean.
    using Samples = std::map<std::int64_t, std::vector<double>>;
    std::vector<Samples> by_round(first_of.size());
    std::set<std::int64_t> measured_rounds;
    for (std::size_t point = 0; point < points.size(); ++point) {
        const MeasuredSetting& measured = points[point].measured;
        for (std::size_t i = 0; i < measured.step_us.size(); ++i) {
            by_round[plan_of[point]][measured.rounds[i]].push_back(measured.step_us[i]);
            measured_rounds.insert(measured.rounds[i]);
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

constexpr double standard_errors_of_95_percent = 1.96;

// Rounds differ by more than settings do, and not every setting was measured in every one: how
// settings differ is taken from the rounds that they share with the default, how long they take
// from all medians.
void pair_by_rounds(std::vector<SettingComparison>& points) {
    const std::optional<std::size_t> standard = default_among(points);
    if (!standard) {
        return;
    }
    const MeasuredPlans plans = measured_plans(points);
    const auto slower = plans.steps.slower_than(plans.plan_of[*standard]);
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

IsolatedMeasurements isolated_measurements(const MeasuredRun& run) {
    IsolatedMeasurements isolated{.compute_step_us = compute_step_us(run), .messages = {}};
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
        if (run.has(kind)) {
            isolated.messages[kind] = link_points(kind, {run});
        }
    }
    return isolated;
}

std::vector<SettingComparison> compare_settings(const StepInput& input, SettingSteps& steps,
                                                const Scenario& scenario, const MeasuredRun& run) {
    std::vector<SettingComparison> points;
    std::vector<Setting> settings;
    for (MeasuredSetting& measured : measured_settings(scenario, run)) {
        SettingComparison& point = points.emplace_back();
        point.measured = std::move(measured);
        settings.push_back(steps.setting(point.measured));
        point.predicted = steps.evaluate(point.measured);
        check_collectives(run, point, steps.program(point.measured));
        point.predicted_ms = to_ms(point.predicted.times.step());
        point.samples = point.measured.step_us.size();
        point.measured_ms = median(point.measured.step_us) / 1e3;
        const MedianInterval us = median_interval(point.measured.step_us);
        point.measured_interval_ms = {us.low / 1e3, us.high / 1e3};
    }
    pair_by_rounds(points);
    IsolatedMeasurements isolated = isolated_measurements(run);
    if (!scenario.sharding) {
        isolated.updating_ranks = settings_for(scenario.sync, input).framework.updating_ranks;
    }
    for (SettingComparison& point : points) {
        point.attribution = attribute(input, steps.replayed(point.measured),
                                      steps.loop(point.measured), point.measured, isolated);
    }
    const std::vector<ComparedStep> compared(points.begin(), points.end());
    const auto confidences =
        confidence_of(input, settings, plateau_tolerance,
                      measure_errors(compared, 0).noise_floor / standard_errors_of_95_percent);
    for (std::size_t i = 0; i < points.size(); ++i) {
        points[i].predicted.confidence = confidences[i];
    }
    return points;
}

// --- the decision ---

// An interval contains its own estimate.
void widen_to(double share, std::optional<SlowerBy>& interval) {
    if (interval) {
        interval->middle = share;
        interval->low = std::min(interval->low, share);
        interval->high = std::max(interval->high, share);
    }
}

void judge_chosen(Comparison& comparison) {
    const MeasuredPlans plans = measured_plans(comparison.points);
    std::optional<std::size_t> standard;
    if (comparison.default_point) {
        standard = plans.plan_of[*comparison.default_point];
    }
    comparison.decision = judge_decision(plans.steps, plans.plan_of[comparison.chosen], standard);
    comparison.decision.best = plans.first_of[comparison.decision.best];
    widen_to(comparison.regret, comparison.decision.regret);
    widen_to(comparison.gain_over_default, comparison.decision.gain);
}

void judge(const Prediction& prediction, Comparison& comparison) {
    const std::vector<ComparedStep> steps(comparison.points.begin(), comparison.points.end());
    const Evaluation& advised = prediction.advised();
    const JudgedSetting chosen =
        judged_setting(transformed(comparison.points,
                                   [](const SettingComparison& point) {
                                       return PredictedSetting{point.predicted, point.samples};
                                   }),
                       advised);
    static_cast<ErrorMeasures&>(comparison) = measure_errors(steps, chosen.index);
    comparison.advised_was_measured = chosen.advice_is_known;
    comparison.chosen_is_advised = chosen.is_advised;
    comparison.advised_step_ms = to_ms(advised.step());
    comparison.advised =
        advised.sharded ? setting_label(advised) : bucket_cap_text(advised.cap.named());
    comparison.default_point = default_among(comparison.points);
    if (comparison.default_point) {
        comparison.gain_over_default =
            steps[*comparison.default_point].measured_ms / steps[comparison.chosen].measured_ms - 1;
    }
    judge_chosen(comparison);
}

// For the settings that the verdict is about. The extremes of five samples hold their median with a
// probability of 94 %: no interval of theirs holds it with 95 %.
void note_few_samples(Comparison& comparison) {
    constexpr std::size_t few = 6;
    std::size_t fewest = comparison.points[comparison.chosen].samples;
    for (const std::size_t point :
         {comparison.fastest, comparison.default_point.value_or(comparison.chosen)}) {
        fewest = std::min(fewest, comparison.points[point].samples);
    }
    if (fewest < few) {
        comparison.notes.push_back(
            fmt::format("of the {}s that decide only {} measured: intervals are the extremes of "
                        "so few, which say less than 95 %; {} or more are better",
                        setting_word(comparison),
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

// Calls `change` with every link of the step.
template <typename Change>
auto of_links(Change change) {
    return [change](StepInput& input) {
        change(input.link);
        change(input.replicas.link);
    };
}

// One rank communicates with nobody.
void remove_communication(StepInput& input) {
    input.group = {};
    remove_latency(input.link);
    remove_interference(input.link);
}

// Each change at its own best of these settings.
std::vector<ChangedMachine> what_if(const StepInput& input, const Scenario& scenario,
                                    const std::vector<SettingComparison>& points) {
    struct Change {
        const char* name;
        std::function<void(StepInput& input)> make;
        bool frees = false;  // shards stay those of all ranks, whose collectives cost nothing
    };
    const bool shards = scenario.sharding.has_value();
    const auto nothing = [](StepInput& /*input*/) {};
    const std::array<Change, 5> changes{
        {{"as it is", nothing},
         {"twice the bandwidth", of_links([](LinkParameters& link) { scale_bandwidth(link, 2); })},
         {"no latency", of_links(remove_latency)},
         {"no interference", of_links(remove_interference)},
         {"free communication",
          shards ? std::function<void(StepInput&)>(nothing) : remove_communication, shards}}};
    std::vector<ChangedMachine> results;
    for (const Change& change : changes) {
        StepInput changed = input;
        change.make(changed);
        SettingSteps steps(scenario, changed);
        ChangedMachine& result = results.emplace_back();
        result.change = change.name;
        for (std::size_t i = 0; i < points.size(); ++i) {
            const Evaluation step = steps.evaluate(points[i].measured);
            const double ms = to_ms(step.step() - (change.frees ? step.exposed : Duration{0}));
            if (i == 0 || ms < result.step_ms) {
                result.step_ms = ms;
                result.point = i;
            }
        }
    }
    return results;
}

}  // namespace

bool is_noise_known(const Comparison& c) {
    constexpr double fewest = 3;
    return median_of(c.points, [](const SettingComparison& point) {
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
        std::ranges::minmax_element(c.points, {}, &SettingComparison::measured_ms);
    const bool caps_differ = most->measured_ms > (1 + c.noise_floor) * least->measured_ms;
    const bool by_luck = c.rank_correlation < least_correlation && caps_differ;
    return c.decision.verdict == Verdict::held && by_luck ? Verdict::inconclusive
                                                          : c.decision.verdict;
}

Comparison compare_steps(const Scenario& scenario, const MeasuredRun& run,
                         const Prediction& prediction) {
    check_steps(scenario, run);
    check_same_scenario(scenario, run);
    const StepInput input = compared_input(scenario, run);
    check_unrolled(input);
    Comparison comparison;
    comparison.scenario = scenario.name;
    comparison.ranks = scenario.group.ranks;
    comparison.machine = machine_of(run);
    comparison.notes = run.warnings;
    comparison.strategy = scenario.sync.strategy;
    if (scenario.sharding) {
        comparison.sharded = scenario.sharding->strategy;
    }
    comparison.shared_gpu = run.transport.shared_gpu;
    if (run.environment) {
        constexpr std::size_t longest_command = 4000;
        comparison.command =
            shown_line(shell_line(passed_on_command(run.environment->command)), longest_command);
    }
    SettingSteps steps(scenario, input);
    comparison.points = compare_settings(input, steps, scenario, run);
    judge(prediction, comparison);
    comparison.reasons_to_withhold = reasons_to_withhold(scenario);
    for (const SettingComparison& point : comparison.points) {
        for (const auto* samples :
             {&point.measured.step_us, &point.measured.free_communication_us}) {
            comparison.measuring_s += std::accumulate(samples->begin(), samples->end(), 0.0) / 1e6;
        }
    }
    note_few_samples(comparison);
    comparison.what_if = what_if(input, scenario, comparison.points);
    const MeasuredSetting& chosen = comparison.points[comparison.chosen].measured;
    const Program program = steps.program(chosen);
    comparison.predicted_picture = predicted_picture(program, steps.loop(chosen));
    comparison.measured_picture = measured_picture(chosen, program);
    return comparison;
}

}  // namespace bucketwise
