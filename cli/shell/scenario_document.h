// The scenario that a command line means: a file and the options that change it.
#pragma once

#include <string>

#include <boost/program_options.hpp>

#include "cli/shell/option_values.h"
#include "sim/base/json.h"
#include "sim/link/link.h"

namespace bucketwise {

// --link, --strategy and --set, which every command that takes a scenario has; and --set alone.
void add_scenario_options(boost::program_options::options_description& options);
void add_set_option(boost::program_options::options_description& options);

// --device, --batch and --dtype, of commands that also take a model's name for a scenario.
void add_workload_options(boost::program_options::options_description& options);

// Reads `file`, or makes the scenario of the model that it names where there is no such file
// (sim/scenario/usual_scenario.h), and applies those options. Throws InputError.
Json read_scenario_document(const boost::program_options::variables_map& values,
                            const std::string& file);

// --ranks, of commands that run none: how many the scenario is simulated with.
inline constexpr OptionText ranks_option{"ranks",
                                         "how many ranks, instead of as many as the scenario says"};

// The same with that option too.
Json read_simulated_document(const boost::program_options::variables_map& values,
                             const std::string& file);

// Applies them to a document that is no file's.
void change_document(const boost::program_options::variables_map& values, const std::string& file,
                     Json& document);

// `assignment`, as --set has it, is POINTER=VALUE. VALUE is JSON, or, where it is not, a string.
// Keys on the way that are missing are made; array elements must exist. Throws InputError.
void apply_override(Json& document, const std::string& assignment);

// --nccl-version: of a link that goes by NCCL's cost model. Throws InputError where this does not.
inline constexpr OptionText nccl_version_option{
    "nccl-version",
    "version of NCCL whose cost model a topology's link goes by; default the link's, or 2.28"};
void change_nccl_version(const boost::program_options::variables_map& values, LinkParameters& link);

// The text of a link file or of a preset that --link names. Throws InputError.
std::string read_link_text(const std::string& link);

// The scenario's file, which `command` ("bench bucketed") needs, or must not have. Throw
// UsageError.
std::string scenario_file(const boost::program_options::variables_map& values,
                          const std::string& command);
void refuse_scenario(const boost::program_options::variables_map& values,
                     const std::string& command);

}  // namespace bucketwise
