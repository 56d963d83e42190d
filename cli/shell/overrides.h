// `--set /json/pointer=value`: changes to a scenario before it is read.
#pragma once

#include <string>

#include "sim/base/json.h"

namespace bucketwise {

// `assignment` is POINTER=VALUE. VALUE is JSON, or, where it is not, a string. Keys on the way that
// are missing are made; array elements must exist. Throws InputError.
void apply_override(Json& document, const std::string& assignment);

}  // namespace bucketwise
