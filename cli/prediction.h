// Predicting for a user: with progress, advice and a trace.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/optimum/optimal_plan.h"
#include "sim/predict/knobs.h"
#include "sim/predict/prediction.h"
#include "sim/predict/preset_ends.h"
#include "sim/program/program.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// A prediction and the advice beside it.
struct AdvisedPrediction {
    Prediction prediction;
    SettingAdvice settings;                // where there is a choice
    PriorEnds ends;                        // where the link or the device is a preset
    std::optional<KnobSearch> knobs = {};  // where nothing fits the device
};

// With any strategy: at `caps`, or, if empty, at one cap for every plan; or with every sharding.
Prediction predict_any(const Scenario& scenario, const StepInput& input,
                       const std::vector<Bytes>& caps, const Progress& progress);

// The same with settings to type. A line of progress shows on the terminal where it takes long.
AdvisedPrediction predict_with_progress(const Scenario& scenario, const StepInput& input,
                                        const std::vector<Bytes>& caps,
                                        const std::vector<Destination>& destinations);

// The simulator's input, for any strategy.
StepInput simulated_input(const Scenario& scenario);

// The best buckets, with a line of progress too. No plan of `prediction` beats the bound
// (asserted).
OptimalPlan optimal_plan_with_progress(const Scenario& scenario, const StepInput& input,
                                       const Prediction& prediction);

// Whether the step has few enough operations for a useful trace.
bool can_be_traced(const StepInput& input);

// --- traces for ui.perfetto.dev; they throw InputError where the step cannot be traced ---

// The advised step.
std::string best_step_trace(const Scenario& scenario, const StepInput& input,
                            const Prediction& prediction);

// The step with this cap, or with this sharding, beside a real one.
std::string step_trace_beside(const Scenario& scenario, const StepInput& input, Cap cap,
                              const std::optional<ShardingRequest>& sharding,
                              const TraceProcess& real);

}  // namespace bucketwise
