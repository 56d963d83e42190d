// A prediction as a person reads it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The verdict, a table of the caps that tell something, a small curve, and what to type where.
std::string text_report(const Scenario& scenario, const Prediction& prediction);

// "25 MiB", "1 B"; "-" where the strategy has no cap.
std::string bucket_cap_text(const std::optional<Bytes>& cap);

// Indices into the sweep, rising: its ends, the best, the plateau's ends, and the rows without
// which the curve would look different, at most about a dozen.
std::vector<std::size_t> telling_rows(const Prediction& prediction);

}  // namespace bucketwise
