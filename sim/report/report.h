// A prediction as a person reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/frameworks/framework_advice.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/report/sweep_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// How much of it: what decides, or everything.
enum class Detail : std::uint8_t { brief, full };

// The verdict first, then the caps that matter, what binds the step and, where they were asked for,
// what to type where and what the ends of presets would change. Caps are withheld with the advice.
std::string text_report(const Scenario& scenario, const Prediction& prediction,
                        const SettingAdvice& settings = {}, const PriorEnds& ends = {},
                        Detail detail = Detail::brief);

// A table of the caps that are something: the fastest, the default, the best at p50 and at p99.
std::string text_of(const PercentileTable& table);

// What to know beside the numbers: the prediction's notes, then the scenario's caveats.
std::vector<std::string> notes_of(const Scenario& scenario, const Prediction& prediction);

}  // namespace bucketwise
