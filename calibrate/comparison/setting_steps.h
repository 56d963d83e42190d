// The simulator's side of a comparison: the step of any strategy with a measured setting.
#pragma once

#include <optional>

#include "calibrate/comparison/measured_setting.h"
#include "calibrate/fit/measured_run.h"
#include "sim/engine/step_loop.h"
#include "sim/predict/evaluation.h"
#include "sim/predict/planned_setting.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The simulator's input for steps of that run. Ranks on a host compute by themselves, whatever
// device a scenario that shards names.
StepInput compared_input(const Scenario& scenario, const MeasuredRun& run);

class SettingSteps {
  public:
    // Both are kept by reference. Throws InputError as Evaluator.
    SettingSteps(const Scenario& scenario, const StepInput& input);

    Evaluation evaluate(const MeasuredSetting& measured);

    // The step of the slowest rank.
    [[nodiscard]] Program program(const MeasuredSetting& measured) const;

    // --- as ranks replay it ---

    [[nodiscard]] Setting setting(const MeasuredSetting& measured) const;
    [[nodiscard]] Program replayed(const MeasuredSetting& measured) const;
    [[nodiscard]] StepLoop loop(const MeasuredSetting& measured) const;

  private:
    const Scenario& scenario_;
    const StepInput& input_;
    std::optional<Evaluator> of_caps_;  // none: parameters are sharded
};

}  // namespace bucketwise
