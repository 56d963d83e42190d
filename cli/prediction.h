// Predicting for a user: with progress, advice and a trace.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/optimum/optimal_plan.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// A prediction, and what a user is told beside it.
struct AdvisedPrediction {
    Prediction prediction;
    SettingAdvice settings;  // where there is a cap
    PriorEnds ends;          // where the link or the device is a preset
};

// At `caps`, or, if empty, one cap for every plan, with what to type there. Where it takes long, a
// line on the terminal says how far it is.
AdvisedPrediction predict_with_progress(const Scenario& scenario, const StepInput& input,
                                        const std::vector<Bytes>& caps,
                                        const std::vector<Destination>& destinations);

// The best way to bucket, found with a line of progress too. No plan of `prediction` beats its
// bound (asserted).
OptimalPlan optimal_plan_with_progress(const Scenario& scenario, const StepInput& input,
                                       const Prediction& prediction);

// Whether the step has few enough operations for a trace to be of use.
bool can_be_traced(const StepInput& input);

// The recommended step for ui.perfetto.dev. Throws InputError where it cannot be traced.
std::string best_step_trace(const Scenario& scenario, const StepInput& input,
                            const Prediction& prediction);

// The step with this cap beside a real one. Throws as above.
std::string step_trace_beside(const Scenario& scenario, const StepInput& input, Cap cap,
                              const TraceProcess& real);

}  // namespace bucketwise
