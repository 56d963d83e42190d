// Whose gradients an import's are, as --model says.
#pragma once

#include <string>

#include "sim/workload/workload.h"

namespace bucketwise {

// A model that ships, or that of a scenario file or of a configuration of Hugging Face
// (config.json, or the folder that it lies in): the names, order and sizes of its gradients. Its
// times are not to be looked at.
Workload imported_model(const std::string& model);

}  // namespace bucketwise
