// Which settings of a sharded step are measured: the scenario's own, and those of --sharding.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// `text`: numbers of layers per group between commas, or "all", each perhaps with "/keep" behind
// it; "auto": the powers of two, and all. Of zero3: numbers of elements to prefetch, or "all";
// "auto": none, a quarter and all. The scenario's own comes first; of settings with which ranks do
// the same only one is there. `workload`: the scenario's. Precondition: it shards. Throws
// InputError.
std::vector<ShardingRequest> settings_to_measure(const std::string& text, const Scenario& scenario,
                                                 const Workload& workload);

}  // namespace bucketwise
