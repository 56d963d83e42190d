// bucketwise predict of a scenario that shards.
#pragma once

#include "cli/shell/command_help.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Refuses options that are about bucket caps. The exit code.
int predict_sharded_scenario(const CommandLine& line, const Scenario& scenario);

}  // namespace bucketwise
