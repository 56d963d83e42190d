// A traced run as the document of a scenario: what the user is given, to read and to change.
#pragma once

#include <cstdint>
#include <vector>

#include "import/run/traced_gradients.h"
#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/base/json.h"

namespace bucketwise {

// The side stream that what is called stall_name (typical_step.h) occupies.
constexpr const char* others_stream = "others";

// All but its link. `gradients` are by readiness; `model` has them as the user knows them.
Json scenario_document(const TracedRun& run, std::int64_t ranks,
                       const std::vector<Gradient>& gradients, const Workload& model,
                       Findings& findings);

}  // namespace bucketwise
