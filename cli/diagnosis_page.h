// A diagnosis as one HTML page: what it says, and the expected step above the traced one.
#pragma once

#include <string>

#include "import/diagnosis/diagnosis.h"

namespace bucketwise {

// `trace` has both steps, as step_trace_beside() writes them.
std::string diagnosis_page(const Diagnosis& diagnosis, const std::string& name,
                           const std::string& trace);

}  // namespace bucketwise
