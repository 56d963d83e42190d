// Measured steps as cases of a gate: one for each cap.
#pragma once

#include <vector>

#include "calibrate/fit/measured_run.h"
#include "calibrate/gate/gate_run.h"

namespace bucketwise {

// A run of each file for every cap that it has steps of; the files are of the same job. Throws
// InputError for a file without steps.
std::vector<GateCase> measured_cases(const std::vector<MeasuredRun>& runs);

}  // namespace bucketwise
