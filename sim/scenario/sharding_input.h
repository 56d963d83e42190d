// Reading what the section sync says of a sharded step.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Of the section sync, whatever its strategy.
inline const std::vector<std::string_view> sync_keys{"strategy",
                                                     "bucket_cap_mib",
                                                     "first_bucket_mib",
                                                     "bucket_cap_mib_list",
                                                     "views",
                                                     "fused_copies",
                                                     "batched_grad_copy",
                                                     "static_graph",
                                                     "compiled",
                                                     "comm_hook",
                                                     "pytorch_version",
                                                     "find_unused_parameters",
                                                     "broadcast_buffers",
                                                     "batch_norm",
                                                     "sharded_optimizer",
                                                     "closing",
                                                     "order",
                                                     "launch",
                                                     "framework",
                                                     "framework_version",
                                                     "sharding"};

// None: the strategy at `place`, the section sync, does not shard. Throws InputError.
std::optional<ShardingRequest> read_sharding(const JsonPlace& place);

// What the object `sharding`, at `place`, says to the strategy. Throws InputError.
ShardingRequest read_sharding_settings(const JsonPlace& place, ShardedStrategy strategy);

// The same, as a scenario says it: what users turn, and what else is not as it is unless told.
Json sharding_json(const ShardingRequest& request);

// Throws InputError, of `file`, where the scenario's workload, step or batch_norm are not for a
// sharded step.
void check_shardable(const std::string& file, const Scenario& scenario);

// Throws InputError where the groups, at `place`, the section sync, are none of the scenario's
// workload, or its cluster, its step or its batch_norm are not for a sharded step. Precondition
// (asserted): the scenario shards.
void check_sharding(const JsonPlace& place, const Scenario& scenario);

}  // namespace bucketwise
