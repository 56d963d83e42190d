// Measuring, for measure and validate: options, the measurement, and the report at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/ranks/backends.h"
#include "cli/ranks/measure_rank.h"
#include "cli/ranks/rank_job.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"

namespace bucketwise {

struct MeasureRequest {
    std::string file;
    std::string output;
    std::optional<std::vector<Bytes>> caps;  // empty: auto
    std::optional<std::string> sharding;
    std::vector<Bytes> messages;  // empty: auto
    std::optional<std::vector<Protocol>> protocols;
    std::optional<std::vector<std::int64_t>> contention_ctas;
    std::optional<std::int64_t> rounds;
    std::optional<double> time_s;
    std::uint64_t seed = 1;
    bool resume = false;
    BackendOptions backend;
    NetworkOptions network;
    ScenarioOptions scenario;
};

boost::program_options::options_description measuring_options(MeasureRequest& request,
                                                              const char* output_text,
                                                              const char* time_text);

// `identity`: this process, if a launcher started it; its number of ranks then holds.
// `measurements`: the file to measure into, where -o is a folder. Throws InputError and UsageError.
MeasureOptions measure_options(const MeasureRequest& request, const CommandLine& line,
                               const std::optional<RankIdentity>& identity,
                               const std::optional<std::string>& measurements = {});

struct MeasureOutcome {
    int exit_code = exit_done;
    std::string file = {};         // with all measurements, in the process that has it; else empty
    std::string interrupted = {};  // the interruption, where the user ended a run that has records
};

// A process that a launcher started is one rank. Throws InputError, and std::runtime_error when
// measuring failed; a run that the user ends fails unless `ends_well`.
enum class Interruption : std::uint8_t { is_failure, ends_well };
MeasureOutcome measure(const MeasureOptions& options, const std::optional<RankIdentity>& identity,
                       Interruption interruption = Interruption::is_failure);

// Medians and spreads of all records.
std::string measure_report(const std::vector<Measurement>& records);

}  // namespace bucketwise
