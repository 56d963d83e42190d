// Predicted beside measured, at every cap that was measured.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/comparison/attribution.h"
#include "calibrate/comparison/measured_cap.h"
#include "calibrate/fit/measured_run.h"
#include "sim/base/json.h"
#include "sim/base/statistics.h"
#include "sim/predict/prediction.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct CapComparison {
    MeasuredCap measured;
    Evaluation predicted;
    double predicted_ms = 0;
    double measured_ms = 0;  // median
    MedianInterval measured_interval_ms;
    Attribution attribution;
    bool operator==(const CapComparison&) const = default;

    [[nodiscard]] double error() const { return predicted_ms / measured_ms - 1; }  // as a share
};

// The predicted step if something were different, at the best of the measured caps.
struct ChangedMachine {
    std::string change;
    double step_ms = 0;
    std::optional<Bytes> cap;
    bool operator==(const ChangedMachine&) const = default;
};

// One span of a step, for a picture.
struct PictureSpan {
    std::string what;
    double begin_ms = 0;
    double end_ms = 0;
    bool operator==(const PictureSpan&) const = default;
};

struct StepPicture {
    std::vector<PictureSpan> computing;
    std::vector<PictureSpan> communicating;
    double step_ms = 0;
    bool operator==(const StepPicture&) const = default;
};

struct Comparison {
    std::string scenario;
    std::string strategy;
    std::int64_t ranks = 1;
    std::string machine;                // hardware, versions, date
    std::string command;                // that measured
    bool shared_gpu = false;            // several ranks ran on one GPU: no interconnect
    std::vector<CapComparison> points;  // by rising cap
    // Index into points: the fastest prediction, or the least expected regret if that is less.
    std::size_t chosen = 0;
    std::size_t fastest = 0;  // the fastest measured
    std::optional<std::size_t> default_cap;
    double mape = 0;  // shares, all
    double max_error = 0;
    double rank_correlation = 0;
    double regret = 0;             // of the chosen
    double noise_floor = 0;        // median half-width of the measured intervals
    double gain_over_default = 0;  // measured: default / chosen - 1
    std::vector<ChangedMachine> what_if;
    StepPicture predicted_picture;  // of the chosen cap
    StepPicture measured_picture;
    std::vector<std::string> notes;
    bool operator==(const Comparison&) const = default;
};

// The goals that a comparison is held against.
constexpr double mape_goal = 0.02;
constexpr double regret_goal = 0.01;

[[nodiscard]] inline bool meets_error_goal(const Comparison& c) {
    return c.mape <= (c.noise_floor > mape_goal ? c.noise_floor : mape_goal);
}
// Whether there was something to decide.
[[nodiscard]] inline bool has_decision(const Comparison& c) {
    return c.points.size() > 1 && c.default_cap.has_value();
}
[[nodiscard]] inline bool meets_decision_goal(const Comparison& c) {
    return c.regret <= regret_goal + c.noise_floor && c.gain_over_default >= -c.noise_floor;
}

// Predicts every cap that `run` measured with `scenario`, which holds the calibrated link and
// computing. Throws InputError when the run has no steps, or is one of another number of ranks,
// strategy or bucket plan than the scenario's.
Comparison compare_steps(const Scenario& scenario, const MeasuredRun& run);

Json to_json(const Comparison& comparison);

// The measured step at the chosen cap, for a trace.
TraceProcess measured_process(const Comparison& comparison);

// For people: "25 MiB", or "-" without a cap; what point `i` is besides a point.
std::string cap_text(const std::optional<Bytes>& cap);
std::string marks_of(const Comparison& comparison, std::size_t i);

// What a reader wants to know first, a sentence or two each.
std::vector<std::string> verdict(const Comparison& comparison);

// The table and the verdict, for a person.
std::string comparison_report(const Comparison& comparison);

}  // namespace bucketwise
