// The inputs of `bucketwise check` as cases of its gate.
#pragma once

#include <string>
#include <vector>

#include "calibrate/gate/gate_run.h"
#include "cli/shell/scenario_document.h"

namespace bucketwise {

// All traces form one case: traces of one rank are several runs, traces of several ranks one run.
// Measurements form a case for each cap, each file a run. Every scenario is a case, as options
// change it. Throws InputError.
std::vector<GateCase> cases_of_files(const ScenarioOptions& options,
                                     const std::vector<std::string>& files);

}  // namespace bucketwise
