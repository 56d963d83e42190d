// A gate's verdict: for people, for a pull request, for CI's test reports, and for programs.
#pragma once

#include <string>

#include "calibrate/gate/gate.h"
#include "sim/base/json.h"

namespace bucketwise {

std::string text_of(const GateVerdict& verdict);
std::string markdown_of(const GateVerdict& verdict);
std::string junit_of(const GateVerdict& verdict);  // XML, a test for every case
Json to_json(const GateVerdict& verdict);

}  // namespace bucketwise
