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

// The lines that checkpoint the blocks of a workload's model, followed by those of `sharding`, if
// there is any. Places that cannot express both are left out.
std::vector<ShardedSetting> recompute_settings(const Recompute& recompute, const Workload& workload,
                                               const std::vector<ShardedSetting>& sharding);

// For `input`'s request. A place that cannot express its groups is left out.
std::vector<ShardedSetting> sharded_settings(const ShardedInput& input);

}  // namespace bucketwise
