// The baseline of a gate as a file: the last observation that was accepted.
#pragma once

#include <string>
#include <vector>

#include "calibrate/gate/gate_run.h"
#include "sim/base/json_table.h"

namespace bucketwise {

// The document scenarios/baseline.schema.json.
const ObjectText& baseline_text();

Json baseline_json(const std::vector<GateCase>& cases);

// `document` is the file `file`. Throws InputError.
std::vector<GateCase> read_baseline(const Json& document, const std::string& file);

}  // namespace bucketwise
