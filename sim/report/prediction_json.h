// A prediction as a program reads it: the contract of `predict --json`.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/json.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/optimum/optimal_groups.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/predict/preset_ends.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The format of to_json() of a prediction. It counts up when a key goes or changes its meaning.
constexpr int prediction_format = 2;

// Keys: format; verdict with advice (set_cap, keep_default, no_choice, withheld, cannot_tell,
// does_not_fit), text and, with set_cap, saved_95, the shares of the default's step that enclose
// 95 % of cases; with cannot_tell, hangs_on: the larger or smaller buckets in doubt, what they save
// at both ends of overlap's costs, and the assumption that decides, as assumed, where it turns and
// on which side of that the default is to be kept; scenario,
// strategy, ranks, link, best, default, keep_default, configured (only where the scenario names a
// cap or a first bucket), plateau_mib, binding, every_plan, sweep, settings, notes. A row holds
// bucket_cap_mib (null without a cap), same_plan_mib, buckets, bucket_bytes in launch order, times
// in ms, and, where something varies (confidence.h), step_interval_ms, which holds 95 % of steps,
// and expected_regret; where overlap's costs are assumed, saved_at_ends. `settings` and link_preset
// (only where there are ends) hold the settings and preset ends that were asked for; with_ddp is
// the same step with DDP, for other strategies; notes are the prediction's and the scenario's
// caveats. With --plan optimal the program adds `optimal` (optimal_report.h), with --tune
// `tune_nccl` and `tune_computing`, lists of levers.
//
// A sharded prediction has `sharded`, true, and no key about caps or defaults: best, configured,
// and sweep hold rows with sharding, as in a scenario, groups, largest_gather_bytes and memory in
// place of a cap and its buckets; frontier holds those that no other beats in step and memory.
Json to_json(const Scenario& scenario, const Prediction& prediction,
             const SettingAdvice& settings = {}, const PriorEnds& ends = {});

// draws; fastest, default, best_p50 and best_p99, each with bucket_cap_mib, p50_ms, p90_ms, p95_ms
// and p99_ms; caps: all rows.
Json to_json(const PercentileTable& table);

// The known parts in bytes; the most at one time, and, where the device's memory is known, whether
// it fits.
Json to_json(const MemoryNeed& need);

// Each with step_ms, saved, saved_at_ends, memory_bytes and changes: knob, value, text, typed.
Json to_json(const Scenario& scenario, const std::vector<Lever>& levers);

Json to_json(const OptimalGroups& optimum);
Json to_json(const std::vector<StrategyRow>& rows);

// The number of MiB to type for a cap; null without one.
Json mib_or_null(const std::optional<Bytes>& cap);

}  // namespace bucketwise
