// What to type into each framework to get a bucket cap.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario.h"
#include "sim/sweep.h"

namespace bucketwise {

struct FrameworkSetting {
    std::string_view framework;   // key in JSON, for example "pytorch_ddp"
    std::string_view key;         // the framework's own name of the setting
    std::optional<double> value;  // in the framework's own unit; none: leave it at its default
    std::string typed;            // as typed in a script or on a command line
    bool operator==(const FrameworkSetting&) const = default;
};

// The advised cap (the default where that is to be kept, else the best) in each framework's own
// unit: PyTorch DDP counts MiB, Megatron-LM parameters, DeepSpeed elements, Horovod bytes. Each
// closes buckets by a rule of its own, so only the framework whose strategy was simulated gets
// exactly the predicted buckets. Precondition: there is a cap.
std::vector<FrameworkSetting> settings_for(const Scenario& scenario, const Prediction& prediction);

}  // namespace bucketwise
