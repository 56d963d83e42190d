// Measurement files as runs, and the scenario that a run replayed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/fit/measured_run.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// One run per file. Throws InputError.
std::vector<MeasuredRun> read_runs(const std::vector<std::string>& files);

struct MeasuredScenario {
    nlohmann::json document;  // as the environment record has it, links written out
    Scenario scenario;
};

// Nothing where no scenario was replayed. Throws InputError.
std::optional<MeasuredScenario> measured_scenario(const MeasuredRun& run);

}  // namespace bucketwise
