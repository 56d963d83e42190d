// A prediction as a person reads it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/frameworks/framework_advice.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/report/sweep_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The verdict first, then the caps that matter, the shares that bind the step and, where asked for,
// the settings to type and the effect of the ends of presets. Caps are withheld with the advice.
std::string text_report(const Scenario& scenario, const Prediction& prediction,
                        const SettingAdvice& settings = {}, const PriorEnds& ends = {},
                        Detail detail = Detail::brief);

// A table of the marked caps: the fastest, the default, the best at p50 and at p99.
std::string text_of(const PercentileTable& table);

// --- parts that sharded reports share ---

// The verdict and a line with the scenario.
std::string heading_text(const Scenario& scenario, const std::string& verdict,
                         std::string_view strategy);

std::string binding_text(const Binding& binding, Duration step, Duration communication,
                         Duration exposed);

// The prediction's notes, then the scenario's caveats.
std::vector<std::string> notes_of(const Scenario& scenario, std::vector<std::string> notes);
std::string notes_text(const Scenario& scenario, const std::vector<std::string>& notes);

}  // namespace bucketwise
