// The knobs of a step that a rank's memory depends on, crossed: what backward computes again, how
// parameters are sharded, and how a rank's samples are cut into micro-steps. The samples of a step
// stay the same in number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/memory_need.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/recompute.h"

namespace bucketwise {

struct KnobSetting {
    std::optional<Recompute> recompute = {};
    std::int64_t micro_batch = 1;  // samples of one micro-step
    std::int64_t micro_steps = 1;
    std::optional<ShardingRequest> sharding = {};  // none: the scenario's own buckets
    bool operator==(const KnobSetting&) const = default;
};

struct KnobRow {
    KnobSetting setting;
    Duration step{0};
    MemoryNeed memory;
    bool operator==(const KnobRow&) const = default;

    // With room for what memory_need() leaves out: a twentieth of the device.
    [[nodiscard]] bool fits() const;
};

struct KnobSearch {
    KnobRow own;                                   // the scenario's setting
    std::vector<KnobRow> frontier = {};            // of rows that fit, by rising memory: none is
                                                   // faster with less
    std::optional<std::size_t> fastest = {};       // index into frontier; none: no setting fits
    std::optional<std::size_t> least_memory = {};  // within 1 % of the fastest
    KnobRow smallest = {};  // the least memory of all, whether it fits or not
    std::size_t tried = 0;
    std::vector<std::string> notes = {};
};

// Whether the scenario has such knobs: a model on a device. Where computing was measured, or the
// model has BatchNorm, recomputing and micro-batches stay the scenario's own.
bool has_knobs(const Scenario& scenario);

// The scenario with another setting of its knobs. Throws InputError for `/sync/sharding` where it
// cannot be sharded so.
Scenario with_knobs(const Scenario& scenario, const KnobSetting& setting);

// Crosses resharding, replicas, recomputing and micro-batches; then, of the settings near the
// frontier, groups, prefetching and the micro-steps that reduce. Precondition (asserted):
// has_knobs(). Throws InputError if the scenario's own step could last longer than
// longest_duration.
KnobSearch search_knobs(const Scenario& scenario, const Progress& progress);

}  // namespace bucketwise
