// Reading what the section sync says of a sharded step.
#pragma once

#include <optional>

#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// None: the strategy at `place`, the section sync, does not shard. Throws InputError.
std::optional<ShardingRequest> read_sharding(const JsonPlace& place);

// Throws InputError where the groups, at `place`, the section sync, are none of the scenario's
// workload, or its cluster, its step or its batch_norm are not for a sharded step. Precondition
// (asserted): the scenario shards.
void check_sharding(const JsonPlace& place, const Scenario& scenario);

}  // namespace bucketwise
