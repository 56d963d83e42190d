// All steps measured at one setting of a strategy's knobs, over all rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/measured_run.h"
#include "sim/base/units.h"
#include "sim/plan/cap.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

struct MeasuredSetting {
    std::optional<Bytes> cap;                      // none: the strategy has no cap to vary
    std::optional<ShardingRequest> sharding = {};  // of a step that shards, which has no cap
    // The framework's default, not a cap that was named; of a step that shards the scenario's own.
    bool is_default = false;
    std::vector<Bytes> bucket_bytes;   // in launch order; empty where parameters are sharded
    std::vector<double> step_us;       // of the slowest rank, by sample
    std::vector<std::int64_t> rounds;  // the round of each sample
    std::vector<double> free_communication_us;  // the same with collectives that do nothing
    double exposed_us = 0;                      // median
    // Medians of rank 0.
    double computing_us = 0;  // the step without the time that it was blocked
    double forward_us = 0;
    double backward_us = 0;
    double optimizer_us = 0;
    std::vector<double> begin_us;  // by collective
    std::vector<double> end_us;
    std::vector<double> last_begin_us;  // of the last rank
    bool operator==(const MeasuredSetting&) const = default;

    // The cap as an Evaluator's argument.
    [[nodiscard]] Cap asked_cap() const { return is_default ? Cap() : Cap(cap); }
    // Buckets, or collectives of a step that shards.
    [[nodiscard]] std::size_t messages() const {
        return sharding ? begin_us.size() : bucket_bytes.size();
    }
    // Whether ranks do the same with both.
    [[nodiscard]] bool has_plan_of(const MeasuredSetting& other) const {
        return bucket_bytes == other.bucket_bytes && sharding == other.sharding;
    }
};

// By rising cap, the default before a named cap of the same size; settings of sharding by
// resharding, layers per group, and the other knobs. Throws InputError where rounds of one setting
// had different buckets, collectives or strategies, or a setting differs from the scenario's in
// more than its knobs.
std::vector<MeasuredSetting> measured_settings(const Scenario& scenario, const MeasuredRun& run);

// For people: "25 MiB", "2 layers, kept", or "-" without a knob.
std::string setting_name(const MeasuredSetting& setting);

}  // namespace bucketwise
