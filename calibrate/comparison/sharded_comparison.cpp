#include "calibrate/comparison/sharded_comparison.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/predict/prediction.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/report/sweep_table.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

void check_sharded(const Scenario& scenario, const MeasuredRun& run) {
    const std::string_view strategy = name_of(scenario.sharding->strategy);
    for (const StepRecord& step : run.steps) {
        if (step.strategy != strategy || !step.sharding) {
            throw InputError(run.file, "",
                             fmt::format("steps of the strategy {}, as in the scenario", strategy),
                             step.strategy);
        }
    }
}

// The scenario's own request with the settings that measurements vary.
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
    std::vector<double> samples;
    for (const StepRecord* record : steps.records) {
        samples.insert(samples.end(), record->samples_us.begin(), record->samples_us.end());
    }
    const MedianInterval interval_us = median_interval(samples);
    const Evaluation predicted = evaluate_sharded(scenario, input);
    point.samples = samples.size();
    point.predicted_ms = to_ms(predicted.step());
    point.measured_ms = median(samples) / 1e3;
    point.measured_interval_ms = {interval_us.low / 1e3, interval_us.high / 1e3};
    point.predicted_exposed_ms = to_ms(predicted.exposed);
    point.measured_exposed_ms =
        median_of(steps.records, &StepRecord::exposed_communication_us) / 1e3;
    return point;
}

Json setting_json(const SettingComparison& point) {
    Json json = step_json(point);
    json["sharding"] = sharding_json(point.setting);
    json["collectives"] = point.collectives;
    json["predicted_exposed_ms"] = point.predicted_exposed_ms;
    json["measured_exposed_ms"] = point.measured_exposed_ms;
    return json;
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
            measured_interval_text(point), 100 * point.error(), marks.empty() ? "" : "  ", marks);
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
    ShardedComparison comparison;
    set_head(scenario, run, comparison);
    check_sharded(scenario, run);
    comparison.strategy = scenario.sharding->strategy;
    ShardedInput input = sharded_input(scenario);
    input.step.workload.host_is_device = run.transport.computes_on_host();
    for (const StepsOfSetting& steps : by_setting(scenario, run)) {
        comparison.points.push_back(compare_setting(scenario, run, input, steps));
    }
    const std::vector<ComparedStep> steps(comparison.points.begin(), comparison.points.end());
    const auto chosen = std::ranges::min_element(steps, {}, &ComparedStep::predicted_ms);
    static_cast<ErrorMeasures&>(comparison) =
        measure_errors(steps, static_cast<std::size_t>(chosen - steps.begin()));
    return comparison;
}

Json to_json(const ShardedComparison& comparison) {
    const auto setting = [&](std::size_t i) { return sharding_json(comparison.points[i].setting); };
    Json json = head_json(comparison);
    json["format"] = sharded_comparison_format;
    json["strategy"] = name_of(comparison.strategy);
    json["points"] = json_list(comparison.points, setting_json);
    json["predicted_best"] = setting(comparison.chosen);
    json["measured_best"] = setting(comparison.fastest);
    return json;
}

std::string comparison_report(const ShardedComparison& comparison) {
    return comparison_text(
        comparison, name_of(comparison.strategy), choice_text(comparison),
        settings_table(comparison) +
            fmt::format("\n  Mean error {}, largest {}; steps are known to {} (median half-width "
                        "of the intervals).\n",
                        percent_text(comparison.mape), percent_text(comparison.max_error),
                        percent_text(comparison.noise_floor)));
}

}  // namespace bucketwise
