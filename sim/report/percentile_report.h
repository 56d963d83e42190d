// Percentiles for people and for programs.
#pragma once

#include <string>

#include "sim/base/json.h"
#include "sim/predict/percentiles.h"

namespace bucketwise {

// A table of the caps that are something: the fastest, the default, the best at p50 and at p99.
std::string text_of(const PercentileTable& table);

// draws; fastest, default, best_p50 and best_p99, each with bucket_cap_mib, p50_ms, p90_ms, p95_ms
// and p99_ms; caps: all rows.
Json to_json(const PercentileTable& table);

}  // namespace bucketwise
