// The scenario that a command line means: a file and the options that change it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/command_help.h"
#include "sim/base/json.h"

namespace bucketwise {

// --link, --strategy and --set, which every command that takes a scenario has; and --set alone.
void add_scenario_options(boost::program_options::options_description& options);
void add_set_option(boost::program_options::options_description& options);

// Reads `file` and applies those options. Throws InputError.
Json read_scenario_document(const boost::program_options::variables_map& values,
                            const std::string& file);

// Applies them to a document that is no file's.
void change_document(const boost::program_options::variables_map& values, const std::string& file,
                     Json& document);

// The text of a link file or of a preset that --link names. Throws InputError.
std::string read_link_text(const std::string& link);

struct PositionalArgument {
    const char* option = "";  // among the options
    int most = 1;             // -1: any number
};

// Parses a command line whose arguments without a name are `positional`. Abbreviated options are
// refused.
boost::program_options::variables_map parse_with_positional(
    const std::vector<std::string>& arguments,
    const boost::program_options::options_description& options,
    const PositionalArgument& positional);

// The same with one such argument, "scenario", which is added to the options.
boost::program_options::variables_map parse_arguments(
    const std::vector<std::string>& arguments,
    const boost::program_options::options_description& options);

// The same by a command's description. Nothing when help was asked for and printed.
std::optional<boost::program_options::variables_map> parse_or_help(
    const std::vector<std::string>& arguments, const CommandHelp& help);

// The scenario's file, which `command` ("bench compute") needs, or must not have. Throw UsageError.
std::string scenario_file(const boost::program_options::variables_map& values,
                          const std::string& command);
void refuse_scenario(const boost::program_options::variables_map& values,
                     const std::string& command);

}  // namespace bucketwise
