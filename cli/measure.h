// Measuring, as `bucketwise measure` does it, for every command that begins so.
#pragma once

#include <optional>
#include <string>

#include "cli/ranks/measure_request.h"
#include "cli/shell/exit_codes.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

struct MeasureOutcome {
    int exit_code = exit_done;
    std::string file = {};  // all that was measured, in the process that has it; else empty
};

// Where a launcher started this process, it is one rank. Throws InputError and, when measuring
// failed, std::runtime_error.
MeasureOutcome measure(const MeasureOptions& options, const std::optional<RankIdentity>& identity);

}  // namespace bucketwise
