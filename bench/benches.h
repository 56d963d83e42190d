// The published systems, each a subcommand of `bucketwise bench`.
#pragma once

#include "cli/shell/command_help.h"

namespace bucketwise {

// `bucketwise bench`: empty where the build leaves the published systems out.
extern const CommandGroup bench_group;

CommandHelp bench_allreduce_help();
CommandHelp bench_allgather_help();
CommandHelp bench_reducescatter_help();
CommandHelp bench_bucketed_help();
CommandHelp bench_compare_ddp_help();
CommandHelp bench_ddp_strategies_help();
CommandHelp bench_syncbn_help();
CommandHelp bench_training_help();

}  // namespace bucketwise
