// The gradients of an import, as --model names them.
#pragma once

#include <string>

#include "sim/workload/workload.h"

namespace bucketwise {

// Names, order and sizes of the gradients of a model that ships, of a scenario file, or of a
// Hugging Face configuration (config.json, or its folder). The times mean nothing.
Workload imported_model(const std::string& model);

}  // namespace bucketwise
