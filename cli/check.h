// The inputs of `bucketwise check` as cases of its gate, and the gate's verdict: for people, for a
// pull request, for CI's test reports, and for programs.
#pragma once

#include <string>
#include <vector>

#include "calibrate/gate/gate.h"
#include "cli/shell/scenario_document.h"
#include "sim/base/json.h"

namespace bucketwise {

// All traces form one case: traces of one rank are several runs, traces of several ranks one run.
// Measurements form a case for each cap, each file a run. Every scenario is a case, as options
// change it. Throws InputError.
std::vector<GateCase> cases_of_files(const ScenarioOptions& options,
                                     const std::vector<std::string>& files);

std::string text_of(const GateVerdict& verdict);
std::string markdown_of(const GateVerdict& verdict);
std::string junit_of(const GateVerdict& verdict);  // XML, a test for every case
Json to_json(const GateVerdict& verdict);

}  // namespace bucketwise
