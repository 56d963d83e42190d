// Reading the model of a workload: one that ships, or the shape of one.
#pragma once

#include <string>
#include <variant>

#include "sim/base/json_table.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

constexpr std::int64_t most_sequence = 1 << 20;  // tokens

using ModelChoice = std::variant<std::string, TransformerShape, VitShape, MlpShape>;

// Throws InputError.
ModelChoice read_model(const JsonPlace& place);
JsonDescription model_description();

}  // namespace bucketwise
