// Reading a model that lists its parameters and operations one by one.
#pragma once

#include "sim/base/json_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Throws InputError.
ListedModel read_listed_model(const JsonPlace& place);
const ObjectText& listed_model_text();

}  // namespace bucketwise
