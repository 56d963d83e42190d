// What the commands share that import a profiler's traces: their options, and all that comes once
// the traces are read.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/shell/command_help.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/option_values.h"
#include "import/run/traced_run.h"

namespace bucketwise {

// The description of `bucketwise import COMMAND`, with options of its own after those of all.
CommandHelp trace_help(const std::string& command, std::string_view text,
                       const std::vector<OptionText>& own = {});

// The ranks of a run that files have traced.
using TraceReader = std::function<std::vector<TracedRank>(const std::vector<std::string>& files)>;

// Writes the step that the ranks have in common as a scenario, and prints what was found and how
// it replays; or compares it with another one's. Returns the exit code. Throws UsageError where an
// output would take the place of an input, before anything is read that takes long.
// `kind`: what the traces' files are to be.
int import_traces(const CommandLine& line, const std::string& command, FileKind kind,
                  const TraceReader& reader);

}  // namespace bucketwise
