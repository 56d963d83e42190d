// bucketwise predict of a scenario that shards.
#pragma once

#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/command_help.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Those of --compare-strategies; empty: it was not asked for.
std::vector<StrategyRow> compared_strategies(const boost::program_options::variables_map& values,
                                             const Scenario& scenario);

// The scenario's own step in Perfetto's format, with a real one beside it.
std::string sharded_trace_beside(const Scenario& scenario, const TraceProcess& real);

// Refuses options that are about bucket caps. The exit code.
int predict_sharded_scenario(const CommandLine& line, const Scenario& scenario);

}  // namespace bucketwise
