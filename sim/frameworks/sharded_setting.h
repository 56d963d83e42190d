// The text to type for a sharding setting: fully_shard calls, torchtitan, Accelerate, DeepSpeed.
#pragma once

#include <string>
#include <vector>

#include "sim/sharding/sharded_step.h"

namespace bucketwise {

struct ShardedSetting {
    std::string place;               // "PyTorch", "torchtitan", "Accelerate", "DeepSpeed"
    std::vector<std::string> lines;  // of code or of a file
    std::string note = {};           // a limit of that place; empty: none
    bool operator==(const ShardedSetting&) const = default;
};

// For `input`'s request. A place that cannot express its groups is left out.
std::vector<ShardedSetting> sharded_settings(const ShardedInput& input);

}  // namespace bucketwise
