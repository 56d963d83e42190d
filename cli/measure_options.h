// What users type behind `bucketwise measure`, and behind what begins by measuring.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ranks/measure_request.h"
#include "cli/shell/command_help.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// The file for measurements that -o stands for; throws UsageError. Empty: that very file.
using MeasurementPlace = std::function<std::string(const std::string& output)>;

// `identity`: who this process is, if a launcher started it; its number of ranks then holds. Throws
// InputError and UsageError.
MeasureOptions measure_options(const CommandLine& line, const std::optional<RankIdentity>& identity,
                               const MeasurementPlace& place = {});

// What measure takes, and validate, whose -o and text are others.
CommandHelp help_of_measuring(const std::string& usage, const char* output_text,
                              std::string_view text);

}  // namespace bucketwise
