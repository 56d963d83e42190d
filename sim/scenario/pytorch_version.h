// Reading a version of PyTorch.
#pragma once

#include <compare>

#include "sim/base/json_input.h"

namespace bucketwise {

struct PytorchVersion {
    unsigned major = 0;
    unsigned minor = 0;
    auto operator<=>(const PytorchVersion&) const = default;
};

// "2.4", "2.4.1", "2.4+cu121". Throws InputError.
PytorchVersion read_pytorch_version(const JsonPlace& place);

}  // namespace bucketwise
