// A sharded prediction as a person reads it, and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/json.h"
#include "sim/frameworks/sharded_setting.h"
#include "sim/optimum/optimal_groups.h"
#include "sim/predict/sharded_prediction.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The format of the JSON, whose `sharded` is true. It counts up when a key changes its meaning.
constexpr int sharded_prediction_format = 1;

// The verdict first, then the settings that nothing beats in both step and memory, the shares that
// bind the step, and the settings to type.
std::string text_report(const Scenario& scenario, const ShardedPrediction& prediction,
                        const std::vector<ShardedSetting>& settings);

Json to_json(const Scenario& scenario, const ShardedPrediction& prediction,
             const std::vector<ShardedSetting>& settings);

// The gain of groups of different sizes, and the setting to type.
std::string optimal_text(const ShardedPrediction& prediction, const OptimalGroups& optimum,
                         const std::vector<ShardedSetting>& settings);
Json to_json(const OptimalGroups& optimum);

// A table of strategies, and the one to use.
std::string comparison_text(const std::vector<StrategyRow>& rows);
Json to_json(const std::vector<StrategyRow>& rows);

// "every 2 layers, kept after forward, 1 group ahead": the knobs that a user turns.
std::string setting_text(const ShardingRequest& request);

// The same in a column: "each layer", "2 layers, kept, async".
std::string setting_label(const ShardingRequest& request);

}  // namespace bucketwise
