// A prediction as a person reads it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/frameworks/framework.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The verdict, a table of the caps that tell something, a small curve, and, where they were asked
// for, what to type where and what the ends of a preset link would change.
std::string text_report(const Scenario& scenario, const Prediction& prediction,
                        const std::vector<FrameworkSetting>& settings = {},
                        const PriorEnds& ends = {});

// A table of the caps that are something: the fastest, the default, the best at p50 and at p99.
std::string text_of(const PercentileTable& table);

// What to know beside the numbers: the prediction's notes, then the scenario's caveats.
std::vector<std::string> notes_of(const Scenario& scenario, const Prediction& prediction);

// "25 MiB", "1 B"; "-" where the strategy has no cap.
std::string bucket_cap_text(const std::optional<Bytes>& cap);

// The marks that hold: "fastest, default".
std::string marks_text(const std::vector<std::pair<bool, std::string_view>>& marks);

// Indices into the sweep, rising: its ends, the best, the plateau's ends, and the rows without
// which the curve would look different, at most about a dozen.
std::vector<std::size_t> telling_rows(const Prediction& prediction);

}  // namespace bucketwise
