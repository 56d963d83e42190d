// What to type into each framework to get a bucket cap.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario.h"
#include "sim/units.h"

namespace bucketwise {

struct FrameworkSetting {
    std::string_view framework;  // key in JSON, for example "pytorch_ddp"
    std::string_view key;        // the framework's own name of the setting
    double value = 0;            // in the framework's own unit
    std::string typed;           // as typed in a script or on a command line
    bool operator==(const FrameworkSetting&) const = default;
};

// The cap in each framework's own unit: PyTorch DDP counts MiB, Megatron-LM parameters, DeepSpeed
// elements, Horovod bytes. The frameworks close buckets by rules of their own, so only PyTorch DDP's
// buckets are the predicted ones.
std::vector<FrameworkSetting> settings_for_cap(const Scenario& scenario, Bytes cap);

}  // namespace bucketwise
