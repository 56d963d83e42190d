// Predicted beside measured, at every setting of a strategy's knobs that was measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/comparison/attribution.h"
#include "calibrate/comparison/compared_steps.h"
#include "calibrate/comparison/decision.h"
#include "calibrate/comparison/measured_setting.h"
#include "calibrate/comparison/setting_steps.h"
#include "calibrate/comparison/step_picture.h"
#include "calibrate/fit/measured_run.h"
#include "sim/base/json.h"
#include "sim/predict/prediction.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The measured time: where there is a default, by the medians of all settings, and by the
// difference from the default in the rounds that both were measured in; else the median.
struct SettingComparison : ComparedStep {
    MeasuredSetting measured;
    Evaluation predicted;
    Attribution attribution;
    bool operator==(const SettingComparison&) const = default;
};

// The predicted step if something were different, at the best of the measured settings.
struct ChangedMachine {
    std::string change;
    double step_ms = 0;
    std::size_t point = 0;
    bool operator==(const ChangedMachine&) const = default;
};

// Chosen is the advice of predict, or what stands for it (advised_setting.h).
struct Comparison : ErrorMeasures {
    std::string scenario;
    std::int64_t ranks = 1;
    std::string machine;  // hardware, versions, date
    std::vector<std::string> notes;
    Strategy strategy = Strategy::ddp;
    std::optional<ShardedStrategy> sharded = {};  // the strategy, where it shards
    std::string command;                          // that measured
    bool shared_gpu = false;                      // several ranks ran on one GPU: no interconnect
    std::vector<SettingComparison> points;        // in the order of measured_settings()
    bool advised_was_measured = true;
    bool chosen_is_advised = true;
    std::string advised;         // its name, such as "4 MiB"
    double advised_step_ms = 0;  // predicted
    // The framework's default cap, or the scenario's own setting of sharding.
    std::optional<std::size_t> default_point;
    // Its indices are points; of points with one plan the first. `open` has no meaning.
    MeasuredDecision decision;
    double measuring_s = 0;                             // of all steps
    std::vector<std::string> reasons_to_withhold = {};  // of the scenario
    double gain_over_default = 0;                       // measured: default / chosen - 1
    std::vector<ChangedMachine> what_if;
    StepPicture predicted_picture;  // of the chosen setting
    StepPicture measured_picture;
    bool operator==(const Comparison&) const = default;
};

// The goal for a comparison's mean error, as a share.
constexpr double mape_goal = 0.02;
// Most settings were measured often enough to know the spread of their steps.
[[nodiscard]] bool is_noise_known(const Comparison& comparison);
// Held: within the goal. Inconclusive: beyond it, but not by more than the steps are known.
[[nodiscard]] Verdict error_verdict(const Comparison& comparison);

// There was something to decide.
[[nodiscard]] inline bool has_decision(const Comparison& c) {
    return c.points.size() > 1 && c.default_point.has_value();
}
// Held also where the order of the predictions was right, or settings differ by no more than the
// noise: a choice that is good by luck proves nothing.
[[nodiscard]] Verdict decision_verdict(const Comparison& comparison);

// Predicts every setting that `run` measured with `scenario`, which holds the calibrated link and
// computing, and judges the advice of `prediction`, which is that of compared_input(). Throws
// InputError when the run has no steps, or is one of another number of ranks, strategy or plan than
// the scenario's.
Comparison compare_steps(const Scenario& scenario, const MeasuredRun& run,
                         const Prediction& prediction);

// The format of to_json(); counts up when a key changes its meaning or goes.
constexpr int comparison_format = 2;
Json to_json(const Comparison& comparison);

// The measured step at the chosen setting, for a trace.
TraceProcess measured_process(const Comparison& comparison);

// For people: the strategy's name; a setting as a word, "cap" or "setting"; the name of point `i`,
// or "default"; and its marks, such as "advised".
std::string_view strategy_name(const Comparison& comparison);
std::string_view setting_word(const Comparison& comparison);
std::string point_name(const Comparison& comparison, std::size_t i);
std::string marks_of(const Comparison& comparison, std::size_t i);

// "253 to 268", in ms; nothing is known of the spread of one step.
std::string measured_interval_text(const ComparedStep& step);

// Indices of the points that a verdict is about, rising: the advised one, the best, the default,
// and the ends.
std::vector<std::size_t> deciding_points(const Comparison& comparison);

// The first sentence of a report: the action, its gain, and how sure that is.
std::string verdict_text(const Comparison& comparison);

// The evidence for the verdict, a sentence or two each.
std::vector<std::string> findings(const Comparison& comparison);

// For a person, the verdict first. `full`: every setting, where the error comes from, what would
// help.
std::string comparison_report(const Comparison& comparison, bool full);

}  // namespace bucketwise
