// How often ranks that train apart average their parameters, as text and as JSON.
#pragma once

#include <string>

#include "sim/base/json.h"
#include "sim/predict/local_steps.h"

namespace bucketwise {

std::string local_steps_text(const LocalSteps& local);
Json to_json(const LocalSteps& local);

}  // namespace bucketwise
