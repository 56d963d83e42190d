// Every subcommand: what runs it and what describes it, in the file of its name.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/command_help.h"

namespace bucketwise {

// `bucketwise` itself, and its commands that are groups.
const CommandGroup& all_commands();
const CommandGroup& link_commands();
const CommandGroup& import_commands();
const CommandGroup& bench_commands();

int run_predict(const std::vector<std::string>& arguments);
int run_sweep(const std::vector<std::string>& arguments);
int run_measure(const std::vector<std::string>& arguments);
int run_calibrate(const std::vector<std::string>& arguments);
int run_compare(const std::vector<std::string>& arguments);
int run_validate(const std::vector<std::string>& arguments);
int run_link(const std::vector<std::string>& arguments);
int run_bench(const std::vector<std::string>& arguments);
int run_import(const std::vector<std::string>& arguments);
int run_completion(const std::vector<std::string>& arguments);
int run_man(const std::vector<std::string>& arguments);
int run_link_list(const std::vector<std::string>& arguments);
int run_link_show(const std::vector<std::string>& arguments);
int run_import_hf(const std::vector<std::string>& arguments);
int run_import_kineto(const std::vector<std::string>& arguments);
int run_import_nccl_tests(const std::vector<std::string>& arguments);

CommandHelp predict_help();
CommandHelp sweep_help();
CommandHelp measure_help();
CommandHelp calibrate_help();
CommandHelp compare_help();
CommandHelp validate_help();
CommandHelp link_list_help();
CommandHelp link_show_help();
CommandHelp import_hf_help();
CommandHelp import_kineto_help();
CommandHelp import_nccl_tests_help();
CommandHelp completion_help();
CommandHelp man_help();

}  // namespace bucketwise
