#include "calibrate/comparison/setting_steps.h"

#include "sim/engine/bucket_planner.h"
#include "sim/program/step_programs.h"

namespace bucketwise {

StepInput compared_input(const Scenario& scenario, const MeasuredRun& run) {
    if (!scenario.sharding) {
        return step_input(scenario);
    }
    StepInput input = sharded_input(scenario).step;
    input.workload.host_is_device = run.transport.computes_on_host();
    return input;
}

SettingSteps::SettingSteps(const Scenario& scenario, const StepInput& input)
    : scenario_(scenario), input_(input) {
    if (!scenario.sharding) {
        of_caps_.emplace(input, scenario.sync);
    }
}

Evaluation SettingSteps::evaluate(const MeasuredSetting& measured) {
    return of_caps_ ? of_caps_->evaluate(measured.asked_cap())
                    : evaluate_sharded(scenario_, {input_, measured.sharding.value()});
}

Setting SettingSteps::setting(const MeasuredSetting& measured) const {
    return of_caps_
               ? Setting(settings_of_replay(with_cap(scenario_.sync, measured.asked_cap()), input_))
               : Setting(measured.sharding.value());
}

Program SettingSteps::program(const MeasuredSetting& measured) const {
    return of_caps_ ? of_caps_->program(measured.asked_cap())
                    : sharded_program({input_, measured.sharding.value()});
}

Program SettingSteps::replayed(const MeasuredSetting& measured) const {
    if (!of_caps_) {
        return program(measured);
    }
    const auto sync = std::get<SyncSettings>(setting(measured));
    return build_program(input_, sync, plan_of(input_, sync));
}

StepLoop SettingSteps::loop(const MeasuredSetting& measured) const {
    return PlannedSetting(input_, setting(measured)).loop(input_);
}

}  // namespace bucketwise
