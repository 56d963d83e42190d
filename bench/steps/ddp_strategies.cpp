// bucketwise bench ddp-strategies: what synchronising naively, flat or overlapped costs, as
// Stanford CS336's second assignment asks.
#include <string>
#include <string_view>
#include <vector>

#include "bench/benches.h"
#include "bench/steps/step_table.h"
#include "cli/shell/option_values.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view strategy_explanation = R"(
examples:
  bucketwise bench ddp-strategies scenarios/cs336_ddp.json --simulate --published scenarios/published/cs336_ddp.csv
  bucketwise bench ddp-strategies scenarios/transformer_small.json --backend gloo --link-rate 1gbit
  bucketwise bench ddp-strategies scenarios/gpt2_h200.json --backend nccl --strategies naive,flat,overlap,bucketed,ddp

sync is the host's wall time in the call that finishes synchronisation. On a GPU that is launching and enqueueing waits,
however long the wire takes. exposed is what a device synchronisation before and after that call would see: from the end of
backward on the device until every gradient is reduced and back in place. wire is what the collectives took, hidden or not.
)";

std::vector<StepVariant> strategy_variants(const po::variables_map& values,
                                           const Scenario& scenario, const std::string& /*file*/) {
    std::vector<StepVariant> variants;
    for (const std::string& name : list_value(values, "strategies")) {
        StepVariant variant{.label = name, .scenario = scenario};
        variant.scenario.sync.strategy = choice_named(name, every<Strategy>, "--strategies");
        variant.cap = cap_of(variant.scenario.sync);
        variants.push_back(std::move(variant));
    }
    return variants;
}

std::vector<StepPlace> strategy_places(const std::vector<StepVariant>& variants) {
    std::vector<StepPlace> places;
    for (const StepVariant& variant : variants) {
        places.push_back({.variant = places.size(),
                          .keys = {std::string(name_of(variant.scenario.sync.strategy))}});
    }
    return places;
}

StepTable strategy_table() {
    return {
        .name = "ddp-strategies",
        .explanation = strategy_explanation,
        .options = {{"strategies", "strategies to compare, as scenarios name them",
                     "naive,flat,overlap,bucketed"}},
        .variants = strategy_variants,
        .keys = {{"strategy", "strategy"}},
        .columns = {{{"step_s", "step\ns", 6}, seconds(mean, &StepSample::step_us), true},
                    {{"std_step_s", "std\ns", 6},
                     seconds(standard_deviation, &StepSample::step_us),
                     true},
                    {{"sync_s", "sync\ns", 6}, seconds(mean, &StepSample::finishing_host_us), true},
                    {{"std_sync_s", "std\ns", 6},
                     seconds(standard_deviation, &StepSample::finishing_host_us),
                     true},
                    ratio_column({"fraction_sync", "sync\nof step", 4}, "sync_s", "step_s"),
                    {{"exposed_s", "exposed\ns", 6}, seconds(mean, &StepSample::finishing_us)},
                    {{"wire_s", "wire\ns", 6}, seconds(mean, &StepSample::wire_us)},
                    error_column({"step_error_percent", "step\nerror %", 2}, "step_s"),
                    error_column({"sync_error_percent", "sync\nerror %", 1}, "sync_s")},
        .places = strategy_places,
        .values = {{"strategies", some_of(every<Strategy>)}}};
}

}  // namespace

CommandHelp bench_ddp_strategies_help() {
    return help_of(strategy_table());
}

int run_bench_ddp_strategies(const CommandLine& line) {
    return run_step_table(strategy_table(), line);
}

}  // namespace bucketwise
