// The settings of a sharded step to measure: the scenario's own, and those of --sharding.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// `text`: layers per group between commas, or "all", each perhaps with "/keep" behind it; "auto":
// the powers of two and all, and each layer and all kept. For zero3: elements to prefetch, or
// "all"; "auto": none, a quarter and all. The scenario's own setting comes first. Settings with one
// effect appear once. `workload`: the scenario's. Precondition: it shards. Throws InputError.
std::vector<ShardingRequest> settings_to_measure(const std::string& text, const Scenario& scenario,
                                                 const Workload& workload);

// Whether ranks do the same with both settings. Precondition: the scenario shards.
bool does_the_same(const ShardingRequest& a, const ShardingRequest& b, const Scenario& scenario);

}  // namespace bucketwise
