// `--set /json/pointer=value`: changes to a scenario before it is read.
#pragma once

#include <string>

#include "sim/json.h"

namespace bucketwise {

// `assignment` is POINTER=VALUE. VALUE is JSON, or, where it is not, a string. Keys on the way that
// are missing are made; array elements must exist. Throws InputError.
void apply_override(Json& document, const std::string& assignment);

// Replaces the link files that `document`, the scenario file `file`, names by their contents, so
// that overrides can reach into them. Tiers too. Throws InputError.
void inline_link(Json& document, const std::string& file, const FileReader& read_file);

// Sets the value at the pointer by the same rules.
void set_at(Json& document, const std::string& pointer, Json value, const std::string& option);

}  // namespace bucketwise
