// Reading the section sync of a strategy that shards.
#pragma once

#include <optional>
#include <string>

#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Reads the section sync. Empty: its strategy does not shard. Throws InputError.
std::optional<ShardingRequest> read_sharding(const JsonPlace& place);

// The object `sharding` of a strategy. Throws InputError.
ShardingRequest read_sharding_settings(const JsonPlace& place, ShardedStrategy strategy);

// The object as a scenario holds it: the keys that users tune, and others that differ from their
// defaults.
Json sharding_json(const ShardingRequest& request);

// Throws InputError, naming `file`, where a sharded step cannot have the scenario's workload, step
// or batch_norm.
void check_shardable(const std::string& file, const Scenario& scenario);

// The same for the cluster, and for the groups named in the section sync at `place`, which must be
// the workload's. Precondition (asserted): the scenario shards.
void check_sharding(const JsonPlace& place, const Scenario& scenario);

}  // namespace bucketwise
