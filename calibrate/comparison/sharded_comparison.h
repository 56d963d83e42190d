// Predicted beside measured, at every setting of a sharded step that was measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/comparison/compared_steps.h"
#include "sim/base/json.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

struct SettingComparison : ComparedStep {
    ShardingRequest setting;
    std::size_t collectives = 0;  // of a step
    double predicted_exposed_ms = 0;
    double measured_exposed_ms = 0;  // median
    bool operator==(const SettingComparison&) const = default;
};

// Chosen is the fastest predicted of the measured settings.
struct ShardedComparison : ComparisonHead {
    ShardedStrategy strategy = ShardedStrategy::fsdp;
    std::vector<SettingComparison> points;  // in the order of their first measurement
    bool operator==(const ShardedComparison&) const = default;
};

// Predicts every setting that `run` measured with `scenario`, which shards and holds the calibrated
// link and computing. Throws InputError when the run has no steps, or is one of another number of
// ranks, strategy or step than the scenario's.
ShardedComparison compare_settings(const Scenario& scenario, const MeasuredRun& run);

constexpr std::string_view sharded_comparison_format = "bucketwise sharded comparison 1";
Json to_json(const ShardedComparison& comparison);

// For a person: the cost of choosing by the prediction, and every setting.
std::string comparison_report(const ShardedComparison& comparison);

}  // namespace bucketwise
