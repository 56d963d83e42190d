// The knobs of a step, crossed, as people and programs read them.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/frameworks/sharded_setting.h"
#include "sim/predict/knobs.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// "none", "full", "operators", "full, every other block", "full, first 4 blocks".
std::string recompute_text(const std::optional<Recompute>& recompute);

// "fsdp with a group for each layer, resharded after forward, full recompute, micro-batch 2 x 4".
std::string knob_setting_text(const Scenario& scenario, const KnobSetting& setting);

// The lines to type for a setting of the scenario.
std::vector<ShardedSetting> knob_settings(const Scenario& scenario, const KnobSetting& setting);

// The fastest setting that fits, the one with the least memory within 1 % of it, the frontier of
// step against memory, and the lines to type.
std::string knobs_text(const Scenario& scenario, const KnobSearch& search);

// own, frontier, tried, notes; fastest and least_memory, indices into frontier, where any setting
// fits, else smallest. A row holds activation_checkpointing, batch, accumulation, strategy,
// sharding where there is one, step_ms and memory.
Json to_json(const Scenario& scenario, const KnobSearch& search);

}  // namespace bucketwise
