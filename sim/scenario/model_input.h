// Reading the model of a workload: one that ships, the shape of one, or its operations.
#pragma once

#include <variant>

#include "sim/base/json_table.h"
#include "sim/scenario/listed_model_input.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

// Throws InputError.
ModelChoice read_model(const JsonPlace& place);
JsonDescription model_description();

// The key `model` of a workload: without values that are the family's defaults.
Json shape_json(const std::variant<TransformerShape, VitShape>& shape);

}  // namespace bucketwise
