// The published systems, each a subcommand of `bucketwise bench`: what runs it and what describes
// it.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/command_help.h"

namespace bucketwise {

int run_bench_allreduce(const std::vector<std::string>& arguments);
int run_bench_compute(const std::vector<std::string>& arguments);
int run_bench_bucketed(const std::vector<std::string>& arguments);
int run_bench_compare_ddp(const std::vector<std::string>& arguments);
int run_bench_ddp_strategies(const std::vector<std::string>& arguments);
int run_bench_copies(const std::vector<std::string>& arguments);
int run_bench_training(const std::vector<std::string>& arguments);
int run_bench_syncbn(const std::vector<std::string>& arguments);

CommandHelp bench_allreduce_help();
CommandHelp bench_bucketed_help();
CommandHelp bench_compare_ddp_help();
CommandHelp bench_compute_help();
CommandHelp bench_copies_help();
CommandHelp bench_ddp_strategies_help();
CommandHelp bench_syncbn_help();
CommandHelp bench_training_help();

}  // namespace bucketwise
