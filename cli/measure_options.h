// What `bucketwise measure` was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_help.h"
#include "cli/rank_job.h"
#include "hw/backend.h"
#include "hw/measurement.h"
#include "hw/rank_identity.h"
#include "hw/schedule.h"
#include "sim/program.h"
#include "sim/scenario.h"

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
