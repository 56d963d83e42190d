// Predicted beside measured, at every setting of a sharded step that was measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/fit/measured_run.h"
#include "sim/base/json.h"
#include "sim/base/statistics.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

struct SettingComparison {
    ShardingRequest setting;
    std::size_t collectives = 0;  // of a step
    std::size_t samples = 0;
    double predicted_ms = 0;
    double measured_ms = 0;  // median
    MedianInterval measured_interval_ms;
    double predicted_exposed_ms = 0;
    double measured_exposed_ms = 0;  // median
    bool operator==(const SettingComparison&) const = default;

    [[nodiscard]] double error() const { return predicted_ms / measured_ms - 1; }  // as a share
};

struct ShardedComparison {
    std::string scenario;
    ShardedStrategy strategy = ShardedStrategy::fsdp;
    std::int64_t ranks = 1;
    std::string machine;                    // hardware, versions, date
    std::vector<SettingComparison> points;  // in the order in which they were first measured
    std::size_t chosen = 0;                 // the fastest predicted of those that were measured
    std::size_t fastest = 0;                // the fastest measured
    double mape = 0;                        // shares, all
    double max_error = 0;
    double rank_correlation = 0;
    double regret = 0;       // of the chosen
    double noise_floor = 0;  // median half-width of the measured intervals
    std::vector<std::string> notes;
    bool operator==(const ShardedComparison&) const = default;
};

// Predicts every setting that `run` measured with `scenario`, which shards and holds the calibrated
// link and computing. Throws InputError when the run has no steps, or is one of another number of
// ranks, strategy or step than the scenario's.
ShardedComparison compare_settings(const Scenario& scenario, const MeasuredRun& run);

constexpr std::string_view sharded_comparison_format = "bucketwise sharded comparison 1";
Json to_json(const ShardedComparison& comparison);

// For a person: what choosing by the prediction costs, and every setting.
std::string comparison_report(const ShardedComparison& comparison);

}  // namespace bucketwise
