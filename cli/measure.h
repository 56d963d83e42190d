// Measuring, as `bucketwise measure` does it, for every command that begins so.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/exit_codes.h"

namespace bucketwise {

struct MeasureOutcome {
    int exit_code = exit_done;
    std::string file = {};  // all that was measured, in the process that has it; else empty
};

// `arguments` are those of bucketwise measure. Started by one of our own launchers, this process is
// a rank. Throws InputError, UsageError and, when measuring failed, std::runtime_error.
MeasureOutcome measure(const std::vector<std::string>& arguments);

}  // namespace bucketwise
