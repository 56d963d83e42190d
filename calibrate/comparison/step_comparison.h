// Predicted beside measured, at every cap that was measured.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/comparison/attribution.h"
#include "calibrate/comparison/compared_steps.h"
#include "calibrate/comparison/decision.h"
#include "calibrate/comparison/measured_cap.h"
#include "calibrate/fit/measured_run.h"
#include "sim/base/json.h"
#include "sim/predict/prediction.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The measured time: where there is a default cap, by the medians of all caps, and by the
// difference from the default in the rounds that both were measured in; else the median.
struct CapComparison : ComparedStep {
    MeasuredCap measured;
    Evaluation predicted;
    Attribution attribution;
    bool operator==(const CapComparison&) const = default;
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

// Chosen is the advice of predict, or the nearest cap where that plan was not measured.
struct Comparison : ComparisonHead {
    Strategy strategy = Strategy::ddp;
    std::string command;                // that measured
    bool shared_gpu = false;            // several ranks ran on one GPU: no interconnect
    std::vector<CapComparison> points;  // by rising cap
    bool advised_was_measured = true;
    std::optional<Bytes> advised_cap = {};  // none: no cap is named
    std::optional<std::size_t> default_cap;
    // Its indices are points; of points with one plan the first. `open` has no meaning.
    MeasuredDecision decision;
    double measuring_s = 0;                             // of all steps
    std::vector<std::string> reasons_to_withhold = {};  // of the scenario
    double gain_over_default = 0;                       // measured: default / chosen - 1
    std::vector<ChangedMachine> what_if;
    StepPicture predicted_picture;  // of the chosen cap
    StepPicture measured_picture;
    bool operator==(const Comparison&) const = default;
};

// The goal for a comparison's mean error, as a share.
constexpr double mape_goal = 0.02;
// Most caps were measured often enough to know the spread of their steps.
[[nodiscard]] bool is_noise_known(const Comparison& comparison);
// Held: within the goal. Inconclusive: beyond it, but not by more than the steps are known.
[[nodiscard]] Verdict error_verdict(const Comparison& comparison);

// There was something to decide.
[[nodiscard]] inline bool has_decision(const Comparison& c) {
    return c.points.size() > 1 && c.default_cap.has_value();
}
// Held also where the order of the predictions was right, or caps differ by no more than the noise:
// a choice that is good by luck proves nothing.
[[nodiscard]] Verdict decision_verdict(const Comparison& comparison);

// Predicts every cap that `run` measured with `scenario`, which holds the calibrated link and
// computing, and judges what `prediction` of it advises. Throws InputError when the run has no
// steps, or is one of another number of ranks, strategy or bucket plan than the scenario's.
Comparison compare_steps(const Scenario& scenario, const MeasuredRun& run,
                         const Prediction& prediction);

// By point of `comparison` or, before there is one, by measured cap: the samples of every plan,
// paired by round. Caps with one plan are one, and `plan_of` says which.
struct MeasuredPlans {
    PairedSteps steps;
    std::vector<std::size_t> plan_of;   // by cap
    std::vector<std::size_t> first_of;  // by plan: a cap
};
MeasuredPlans measured_plans(const std::vector<MeasuredCap>& caps);

// The cap among `caps` that `prediction` advises, or the nearest one.
struct AdvisedCap {
    std::size_t index = 0;
    bool was_measured = false;
};
AdvisedCap advised_cap(const std::vector<MeasuredCap>& caps, const Prediction& prediction);

// The format of to_json(); counts up when a key changes its meaning or goes.
constexpr int comparison_format = 2;
Json to_json(const Comparison& comparison);

// The measured step at the chosen cap, for a trace.
TraceProcess measured_process(const Comparison& comparison);

// For people: "25 MiB", or "-" without a cap; the cap of point `i`, or "default"; and its marks,
// such as "advised".
std::string cap_text(const std::optional<Bytes>& cap);
std::string point_name(const Comparison& comparison, std::size_t i);
std::string marks_of(const Comparison& comparison, std::size_t i);

// Indices of the points that a verdict is about, rising: the advised cap, the best, the default,
// and the ends.
std::vector<std::size_t> deciding_points(const Comparison& comparison);

// The first sentence of a report: the action, its gain, and how sure that is.
std::string verdict_text(const Comparison& comparison);

// The evidence for the verdict, a sentence or two each.
std::vector<std::string> findings(const Comparison& comparison);

// For a person, the verdict first. `full`: every cap, where the error comes from, what would help.
std::string comparison_report(const Comparison& comparison, bool full);

}  // namespace bucketwise
