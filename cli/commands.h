// Every subcommand: what runs it and what describes it, in the file of its name.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/command_help.h"

namespace bucketwise {

// `bucketwise` itself.
extern const CommandGroup all_commands;

// Runs `bucketwise ARGUMENTS...` and returns the exit code. Messages go to standard error, each one
// line: "bucketwise: ...".
int run_command_line(const std::vector<std::string>& arguments);

int run_predict(const CommandLine& line);
int run_sweep(const CommandLine& line);
int run_measure(const CommandLine& line);
int run_calibrate(const CommandLine& line);
int run_compare(const CommandLine& line);
int run_validate(const CommandLine& line);
int run_check(const CommandLine& line);
int run_completion(const CommandLine& line);
int run_man(const CommandLine& line);
int run_device_list(const CommandLine& line);
int run_device_show(const CommandLine& line);
int run_link_list(const CommandLine& line);
int run_link_show(const CommandLine& line);
int run_settings_check(const CommandLine& line);
int run_import_chakra(const CommandLine& line);
int run_import_flight_recorder(const CommandLine& line);
int run_import_hf(const CommandLine& line);
int run_import_kineto(const CommandLine& line);
int run_import_nccl_tests(const CommandLine& line);
int run_import_nsys(const CommandLine& line);

CommandHelp predict_help();
CommandHelp sweep_help();
CommandHelp measure_help();
CommandHelp calibrate_help();
CommandHelp compare_help();
CommandHelp validate_help();
CommandHelp check_help();
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
