// Reading the model of a workload: one that ships, the shape of one, or its operations.
#pragma once

#include "sim/base/json_table.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

// Generous for anything that exists, and small enough that no product of them overflows.
constexpr std::int64_t most_sequence = 1 << 20;  // tokens
constexpr std::int64_t most_tokens = 1 << 26;    // of a rank

// Throws InputError.
ModelChoice read_model(const JsonPlace& place);
JsonDescription model_description();

}  // namespace bucketwise
