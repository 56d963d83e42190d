// What the commands share that import a profiler's traces: their options, and all that comes once
// the traces are read.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/command_help.h"
#include "cli/shell/option_values.h"
#include "import/replay/trace_import.h"
#include "import/replay/traced_run.h"

namespace bucketwise {

// The description of `bucketwise import COMMAND`, with options of its own after those of all.
CommandHelp trace_help(const std::string& command, std::string_view text,
                       const std::vector<OptionText>& own = {});

// What is asked for, before anything is read that takes long. Throws UsageError where an output
// would take the place of an input.
TraceImportRequest trace_request(const CommandLine& line, const std::string& command);

// Writes the step that the ranks have in common as a scenario, and prints what was found and how
// it replays. Returns the exit code.
int import_ranks(const CommandLine& line, const std::vector<TracedRank>& ranks,
                 const TraceImportRequest& request);

}  // namespace bucketwise
