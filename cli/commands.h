// Every subcommand, described in the file of its name.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/command_help.h"

namespace bucketwise {

// `bucketwise` itself.
extern const CommandGroup all_commands;

// Runs `bucketwise ARGUMENTS...` and returns the exit code. An error is one line on standard
// error: "bucketwise: ...".
int run_command_line(const std::vector<std::string>& arguments);

CommandHelp predict_help();
CommandHelp sweep_help();
CommandHelp measure_help();
CommandHelp calibrate_help();
CommandHelp compare_help();
CommandHelp validate_help();
CommandHelp prove_help();
CommandHelp check_help();
CommandHelp diagnose_help();
CommandHelp device_list_help();
CommandHelp device_show_help();
CommandHelp link_list_help();
CommandHelp link_show_help();
CommandHelp settings_check_help();
CommandHelp import_chakra_help();
CommandHelp import_flight_recorder_help();
CommandHelp import_hf_help();
CommandHelp import_kineto_help();
CommandHelp import_nccl_tests_help();
CommandHelp import_nsys_help();
CommandHelp completion_help();
CommandHelp man_help();

}  // namespace bucketwise
