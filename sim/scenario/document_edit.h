// Changes to a scenario's document before it is read.
#pragma once

#include <cstdint>
#include <string>

#include "sim/base/json.h"

namespace bucketwise {

// Sets the value at the pointer. Keys on the way that are missing are made; array elements must
// exist. `option` is for messages. Throws InputError.
void set_at(Json& document, const std::string& pointer, Json value, const std::string& option);

// Sets the number of ranks, and how many share a node where the document says that.
void set_ranks(Json& document, std::int64_t ranks, std::int64_t ranks_per_node,
               const std::string& option);

}  // namespace bucketwise
