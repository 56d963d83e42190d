// The text to type for a sharding setting: fully_shard calls, torchtitan, Accelerate, DeepSpeed.
#pragma once

#include <string>
#include <vector>

#include "sim/sharding/sharded_step.h"
#include "sim/workload/recompute.h"

namespace bucketwise {

struct ShardedSetting {
    std::string place;               // "PyTorch", "torchtitan", "Accelerate", "DeepSpeed"
    std::vector<std::string> lines;  // of code or of a file
    std::string note = {};           // a limit of that place; empty: none
    bool operator==(const ShardedSetting&) const = default;
};

// Activation checkpointing of the blocks of a model whose parameters the workload has, to be typed
// before anything shards the model. Places that cannot express it are left out.
std::vector<ShardedSetting> recompute_settings(const Recompute& recompute,
                                               const Workload& workload);

// Both by place: the lines of `first` stand before those of `then`.
std::vector<ShardedSetting> joined_settings(std::vector<ShardedSetting> first,
                                            const std::vector<ShardedSetting>& then);

// For `input`'s request. A place that cannot express its groups is left out.
std::vector<ShardedSetting> sharded_settings(const ShardedInput& input);

}  // namespace bucketwise
