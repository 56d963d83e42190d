// The settings of a prediction, as a table and as a small curve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/predict/prediction.h"

namespace bucketwise {

// "25 MiB", "1 B", exactly as typed; "-" where the strategy has no cap.
std::string bucket_cap_text(const std::optional<Bytes>& cap);

// The same with three digits.
std::string rounded_cap_text(const std::optional<Bytes>& cap);

// The marks that hold: "fastest, default".
std::string marks_text(const std::vector<std::pair<bool, std::string_view>>& marks);

// Rising indices into the sweep: its ends, the best, the plateau's ends, and the rows that shape
// the curve, at most about a dozen.
std::vector<std::size_t> telling_rows(const Prediction& prediction);

// "25 MiB"; "2 layers, kept" of a sharded step.
std::string setting_label(const Evaluation& row);

// Whether all caps of the sweep are as good as the best, or indistinguishable from it.
bool all_within_plateau(const Prediction& prediction);

// The lines that decide, or all.
enum class Detail : std::uint8_t { brief, full };

// By rising cap: the ends of the sweep, the best and the fastest, or telling_rows(); then the
// default and the scenario's own cap. With Detail::full caps stand as they have to be typed. A
// sharded step has its frontier by rising memory (of a long one every n-th row, and the last), the
// best and the scenario's own.
std::string sweep_table(const Prediction& prediction, Detail detail);

// Step time over the logarithm of the cap. Each column shows the last plan that starts at or below
// its cap. Empty where there is nothing to see.
std::string curve(const Prediction& prediction);

}  // namespace bucketwise
