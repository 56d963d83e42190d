// Measuring, as `bucketwise measure` does it, for every command that begins so: what users type
// behind it, the measurement, and the text it ends with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ranks/measure_rank.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"

namespace bucketwise {

// The file for measurements that -o stands for; throws UsageError. Empty: that very file.
using MeasurementPlace = std::function<std::string(const std::string& output)>;

// `identity`: who this process is, if a launcher started it; its number of ranks then holds. Throws
// InputError and UsageError.
MeasureOptions measure_options(const CommandLine& line, const std::optional<RankIdentity>& identity,
                               const MeasurementPlace& place = {});

// What measure takes, and validate, whose -o and text are others.
CommandHelp help_of_measuring(const std::string& usage, const char* output_text,
                              const char* time_text, std::string_view text);

struct MeasureOutcome {
    int exit_code = exit_done;
    std::string file = {};         // all that was measured, in the process that has it; else empty
    std::string interrupted = {};  // by what, where the user ended it and the file holds something
};

// Where a launcher started this process, it is one rank. Throws InputError and, when measuring
// failed, std::runtime_error; where the user ended it, only `ends_well` says whether.
enum class Interruption : std::uint8_t { is_failure, ends_well };
MeasureOutcome measure(const MeasureOptions& options, const std::optional<RankIdentity>& identity,
                       Interruption interruption = Interruption::is_failure);

// Medians and spreads of everything in the records.
std::string measure_report(const std::vector<Measurement>& records);

}  // namespace bucketwise
