// What the importers' command lines have alike: the files they read, --output, and what is printed
// beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/command_help.h"
#include "cli/shell/files.h"

namespace bucketwise {

// That --ranks and --ranks-per-node take.
constexpr std::int64_t most_imported_ranks = 1'000'000;

struct ImportCommand {
    const char* name = "";      // as typed after `bucketwise import`
    const char* argument = "";  // the files' name among the options
    const char* files = "";     // what they are, for messages
    bool several = true;
};

struct ImportArguments {
    boost::program_options::variables_map values;
    std::vector<std::string> files;
    std::string output;
};

// Nothing where help was asked for, which is then printed. Throws UsageError where there are no
// files or no output.
std::optional<ImportArguments> read_import_arguments(const std::vector<std::string>& arguments,
                                                     const ImportCommand& command,
                                                     const CommandHelp& help);

// Throws UsageError where the output, or one of `outputs`, would take the place of a file that is
// read: one of `inputs`, or of the command's, called `file`.
void check_import_files(const ImportArguments& arguments, const char* file,
                        std::vector<NamedFile> inputs, const std::vector<NamedFile>& outputs = {});

// Writes all outputs, and prints the report where none of them goes to standard output.
void write_import(const std::vector<OutputText>& outputs, const std::string& report);

}  // namespace bucketwise
