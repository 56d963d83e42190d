// A prediction as a person reads it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/frameworks/framework_advice.h"
#include "sim/optimum/optimal_groups.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/predict/preset_ends.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/report/sweep_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The verdict first, then the settings that matter, the shares that bind the step and, where asked
// for, the settings to type and the effect of the ends of presets. Caps are withheld with the
// advice.
std::string text_report(const Scenario& scenario, const Prediction& prediction,
                        const SettingAdvice& settings = {}, const PriorEnds& ends = {},
                        Detail detail = Detail::brief);

// The lines to type, place by place; empty without any.
std::string settings_text(const std::vector<ShardedSetting>& settings,
                          std::string_view heading = "Settings to type");

// A table of the marked caps: the fastest, the default, the best at p50 and at p99.
std::string text_of(const PercentileTable& table);

// The gain of groups of different sizes, and the setting to type.
std::string optimal_text(const Prediction& prediction, const OptimalGroups& optimum,
                         const std::vector<ShardedSetting>& settings);

// A table of strategies, and the one to use.
std::string comparison_text(const std::vector<StrategyRow>& rows);

}  // namespace bucketwise
