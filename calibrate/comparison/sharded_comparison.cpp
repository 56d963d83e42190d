#include "calibrate/comparison/sharded_comparison.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/comparison/error_measures.h"
#include "calibrate/comparison/step_comparison.h"
#include "sim/base/error.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/predict/sharded_prediction.h"
#include "sim/report/number_text.h"
#include "sim/report/sharded_report.h"
#include "sim/report/sweep_table.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

void check_sharded_run(const Scenario& scenario, const MeasuredRun& run) {
    if (run.steps.empty()) {
        throw InputError(run.file, "", "measured steps", "none");
    }
    if (run.transport.ranks != scenario.group.ranks) {
        throw InputError(run.file, "",
                         fmt::format("steps of {} ranks, as in the scenario", scenario.group.ranks),
                         fmt::format("steps of {}", run.transport.ranks));
    }
    const std::string_view strategy = name_of(scenario.sharding->strategy);
    for (const StepRecord& step : run.steps) {
        if (step.strategy != strategy || !step.sharding) {
            throw InputError(run.file, "",
                             fmt::format("steps of the strategy {}, as in the scenario", strategy),
                             step.strategy);
        }
    }
}

// What the scenario says where nobody varies it while measuring.
ShardingRequest as_in_scenario(const ShardingRequest& measured, const ShardingRequest& own) {
    ShardingRequest request = own;
    request.groups = measured.groups;
    request.layers_per_group = measured.layers_per_group;
    request.reshard_after_forward = measured.reshard_after_forward;
    request.reshard_ranks = measured.reshard_ranks;
    request.zero3.prefetch_elements = measured.zero3.prefetch_elements;
    return request;
}

struct StepsOfSetting {
    ShardingRequest setting;
    std::vector<const StepRecord*> records;
};

std::vector<StepsOfSetting> by_setting(const Scenario& scenario, const MeasuredRun& run) {
    std::vector<StepsOfSetting> settings;
    for (const StepRecord& step : run.steps) {
        ShardingRequest measured = *step.sharding;
        measured.reduces_in_own_dtype = scenario.sharding->reduces_in_own_dtype;
        if (measured != as_in_scenario(measured, *scenario.sharding)) {
            throw InputError(run.file, "/sharding",
                             "settings that differ from the scenario's in groups, resharding and "
                             "prefetching",
                             sharding_json(measured).dump());
        }
        auto found = std::ranges::find(settings, measured, &StepsOfSetting::setting);
        if (found == settings.end()) {
            settings.push_back({measured, {}});
            found = settings.end() - 1;
        }
        found->records.push_back(&step);
    }
    return settings;
}

std::vector<double> all_samples(const std::vector<const StepRecord*>& records) {
    std::vector<double> samples;
    for (const StepRecord* record : records) {
        samples.insert(samples.end(), record->samples_us.begin(), record->samples_us.end());
    }
    return samples;
}

ShardedInput input_of_run(const Scenario& scenario, const MeasuredRun& run) {
    ShardedInput input = sharded_input(scenario);
    input.step.workload.host_is_device = run.transport.computes_on_host();
    return input;
}

SettingComparison compare_setting(const Scenario& scenario, const MeasuredRun& run,
                                  ShardedInput input, const StepsOfSetting& steps) {
    input.request = steps.setting;
    SettingComparison point;
    point.setting = steps.setting;
    point.collectives = sharded_program(input).collectives.size();
    for (const StepRecord* record : steps.records) {
        if (record->collective_begin_us.size() != point.collectives) {
            throw InputError(
                run.file, "",
                fmt::format("steps with the scenario's {} collectives", point.collectives),
                fmt::format("steps with {}", record->collective_begin_us.size()));
        }
    }
    const std::vector<double> samples = all_samples(steps.records);
    const MedianInterval interval_us = median_interval(samples);
    const ShardedEvaluation predicted = evaluate_sharded(scenario, input);
    point.samples = samples.size();
    point.predicted_ms = to_ms(predicted.step());
    point.measured_ms = median(samples) / 1e3;
    point.measured_interval_ms = {interval_us.low / 1e3, interval_us.high / 1e3};
    point.predicted_exposed_ms = to_ms(predicted.exposed);
    point.measured_exposed_ms =
        median_of(steps.records, &StepRecord::exposed_communication_us) / 1e3;
    return point;
}

void judge_settings(ShardedComparison& comparison) {
    const std::vector<SettingComparison>& points = comparison.points;
    const auto plain = transformed(points, [](const SettingComparison& point) {
        return ComparedPoint{.predicted_step_ms = point.predicted_ms,
                             .measured_step_ms = point.measured_ms};
    });
    comparison.mape = mean_absolute_percentage_error(plain);
    comparison.max_error = largest_absolute_error(plain);
    comparison.rank_correlation = rank_correlation(plain);
    const auto least = [&](double SettingComparison::*time) {
        return static_cast<std::size_t>(std::ranges::min_element(points, {}, time) -
                                        points.begin());
    };
    comparison.chosen = least(&SettingComparison::predicted_ms);
    comparison.fastest = least(&SettingComparison::measured_ms);
    comparison.regret = regret(plain, comparison.chosen);
    comparison.noise_floor = median_of(points, [](const SettingComparison& point) {
        return (point.measured_interval_ms.high - point.measured_interval_ms.low) / 2 /
               point.measured_ms;
    });
}

Json setting_json(const SettingComparison& point) {
    return {
        {"sharding", sharding_json(point.setting)},
        {"collectives", point.collectives},
        {"samples", point.samples},
        {"predicted_step_ms", point.predicted_ms},
        {"measured_step_ms", point.measured_ms},
        {"measured_interval_ms", {point.measured_interval_ms.low, point.measured_interval_ms.high}},
        {"error", point.error()},
        {"predicted_exposed_ms", point.predicted_exposed_ms},
        {"measured_exposed_ms", point.measured_exposed_ms}};
}

std::string interval_text(const SettingComparison& point) {
    return point.samples < 2 ? "one step"
                             : fmt::format("{} to {}", three_digits(point.measured_interval_ms.low),
                                           three_digits(point.measured_interval_ms.high));
}

std::string settings_table(const ShardedComparison& comparison) {
    std::string text = fmt::format("{:>28} {:>6} {:>13} {:>12} {:>15} {:>8}\n", "group", "sent",
                                   "predicted, ms", "measured, ms", "95 % interval", "error");
    for (std::size_t i = 0; i < comparison.points.size(); ++i) {
        const SettingComparison& point = comparison.points[i];
        const std::string marks = marks_text({{i == comparison.chosen, "predicted best"},
                                              {i == comparison.fastest, "measured best"}});
        text += fmt::format(
            "{:>28} {:>6} {:>13} {:>12} {:>15} {:>6.1f} %{}{}\n", setting_label(point.setting),
            point.collectives, three_digits(point.predicted_ms), three_digits(point.measured_ms),
            interval_text(point), 100 * point.error(), marks.empty() ? "" : "  ", marks);
    }
    return text;
}

std::string choice_text(const ShardedComparison& comparison) {
    const std::string chosen = setting_label(comparison.points[comparison.chosen].setting);
    if (comparison.points.size() == 1) {
        return fmt::format("{} alone was measured.", chosen);
    }
    if (comparison.chosen == comparison.fastest) {
        return fmt::format("The fastest by prediction, {}, is the fastest that was measured.",
                           chosen);
    }
    return fmt::format(
        "The fastest by prediction, {}, is {} slower than the fastest that was measured, {}.",
        chosen, percent_text(comparison.regret),
        setting_label(comparison.points[comparison.fastest].setting));
}

}  // namespace

ShardedComparison compare_settings(const Scenario& scenario, const MeasuredRun& run) {
    check_sharded_run(scenario, run);
    ShardedComparison comparison;
    comparison.scenario = scenario.name;
    comparison.strategy = scenario.sharding->strategy;
    comparison.ranks = scenario.group.ranks;
    comparison.machine = machine_of(run);
    comparison.notes = run.warnings;
    const ShardedInput input = input_of_run(scenario, run);
    for (const StepsOfSetting& steps : by_setting(scenario, run)) {
        comparison.points.push_back(compare_setting(scenario, run, input, steps));
    }
    judge_settings(comparison);
    return comparison;
}

Json to_json(const ShardedComparison& comparison) {
    const auto setting = [&](std::size_t i) { return sharding_json(comparison.points[i].setting); };
    return {{"format", sharded_comparison_format},
            {"scenario", comparison.scenario},
            {"strategy", name_of(comparison.strategy)},
            {"ranks", comparison.ranks},
            {"machine", comparison.machine},
            {"points", json_list(comparison.points, setting_json)},
            {"predicted_best", setting(comparison.chosen)},
            {"measured_best", setting(comparison.fastest)},
            {"mape", comparison.mape},
            {"max_error", comparison.max_error},
            {"rank_correlation", comparison.rank_correlation},
            {"regret", comparison.regret},
            {"noise_floor", comparison.noise_floor},
            {"notes", comparison.notes}};
}

std::string comparison_report(const ShardedComparison& comparison) {
    std::string text = fmt::format("{}\n\n{}: {}, {}, predicted beside measured\n  {}\n\n",
                                   wrapped(choice_text(comparison)), comparison.scenario,
                                   name_of(comparison.strategy), counted(comparison.ranks, "rank"),
                                   comparison.machine);
    text += settings_table(comparison);
    text += fmt::format(
        "\n  Mean error {}, largest {}; steps are known to {} (median half-width of the "
        "intervals).\n",
        percent_text(comparison.mape), percent_text(comparison.max_error),
        percent_text(comparison.noise_floor));
    for (const std::string& note : comparison.notes) {
        text += fmt::format("  Note: {}.\n", note);
    }
    return text;
}

}  // namespace bucketwise
