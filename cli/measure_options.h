// What `bucketwise measure` was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/ranks/rank_job.h"
#include "cli/shell/command_help.h"
#include "hw/backend/backend.h"
#include "hw/launch/rank_identity.h"
#include "hw/measure/measuring_order.h"
#include "hw/record/measurement.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct MeasureOptions {
    std::vector<std::string> command;  // as typed, for the record
    Scenario scenario;
    std::string scenario_text;  // the document the scenario was read from, links put in place
    StepInput input;            // what is replayed
    const Backend* backend = nullptr;
    BackendRequest request;
    Schedule schedule;
    std::string output;
    bool resume = false;
    JobNetwork network;
};

// Nothing when help was asked for and printed. `identity`: who this process is, if a launcher
// started it; its number of ranks then holds. Throws InputError and UsageError.
std::optional<MeasureOptions> measure_options(const std::vector<std::string>& arguments,
                                              const std::optional<RankIdentity>& identity);

// What measure takes, and validate, whose -o and text are others.
CommandHelp help_of_measuring(const std::string& usage, const char* output_text,
                              std::string_view text);

Transport transport_of(const MeasureOptions& options);

}  // namespace bucketwise
