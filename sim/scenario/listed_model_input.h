// Reading a model that lists its parameters and operations one by one.
#pragma once

#include "sim/base/json_table.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

// Generous for anything that exists, and small enough that no product of them overflows.
constexpr std::int64_t most_sequence = 1 << 20;  // tokens
constexpr std::int64_t most_tokens = 1 << 26;    // of a rank

// Throws InputError.
ListedModel read_listed_model(const JsonPlace& place);
const ObjectText& listed_model_text();

}  // namespace bucketwise
