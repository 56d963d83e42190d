// What the importers of lists of collectives share: options, reading, and writing the scenario.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/shell/command_help.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/option_values.h"
#include "import/collectives/collective_log.h"
#include "import/collectives/log_import.h"
#include "import/source/byte_source.h"

namespace bucketwise {

// Those that all of them have: --output, --model, --link, --group, --ranks.
std::vector<OptionText> log_options();

// The request that they make.
LogImportRequest log_request(const boost::program_options::variables_map& values);

using LogReader = std::function<CollectiveLog(ByteSource source, const std::string& file)>;

// The option that names the files, and what they are to be.
struct LogFiles {
    const char* option;
    FileKind kind;
};

// Reads the files, compressed or not, imports and connects them, and writes the scenario and its
// report.
void import_log_files(const CommandLine& line, const LogFiles& files, const LogReader& read,
                      const LogImportRequest& request);

}  // namespace bucketwise
