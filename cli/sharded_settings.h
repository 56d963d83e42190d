// Which settings of a sharded step are measured: the scenario's own, and those of --sharding.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

// `text`: numbers of layers per group between commas, or "all", each perhaps with "/keep" behind
// it; "auto": the powers of two, and all. The scenario's own comes first; of settings with which
// ranks do the same only one is there. `input`: the scenario's step. Precondition: it shards.
// Throws InputError.
std::vector<ShardingRequest> settings_to_measure(const std::string& text, const Scenario& scenario,
                                                 const StepInput& input);

}  // namespace bucketwise
