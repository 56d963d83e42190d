// The baseline of a gate as a file: what was observed when it was last held to be right.
// scenarios/baseline.schema.json says the same as a schema.
#pragma once

#include <string>
#include <vector>

#include "calibrate/gate/gate_run.h"
#include "sim/base/json.h"

namespace bucketwise {

Json baseline_json(const std::vector<GateCase>& cases);

// `document` is the file `file`. Throws InputError.
std::vector<GateCase> read_baseline(const Json& document, const std::string& file);

}  // namespace bucketwise
