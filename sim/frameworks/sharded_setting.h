// What to type for a sharding setting: fully_shard calls, torchtitan, Accelerate, DeepSpeed.
#pragma once

#include <string>
#include <vector>

#include "sim/sharding/sharded_step.h"

namespace bucketwise {

struct ShardedSetting {
    std::string place;               // "PyTorch", "torchtitan", "Accelerate", "DeepSpeed"
    std::vector<std::string> lines;  // code, or a file's, as they stand
    std::string note = {};           // what that place cannot say; empty: nothing
    bool operator==(const ShardedSetting&) const = default;
};

// Of `input`'s request. A place that cannot express its groups is left out but for the note.
std::vector<ShardedSetting> sharded_settings(const ShardedInput& input);

}  // namespace bucketwise
