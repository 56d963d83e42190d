#include "cli/sharded_predict.h"

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/prediction.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/progress.h"
#include "sim/base/json_input.h"
#include "sim/base/transformed.h"
#include "sim/frameworks/sharded_setting.h"
#include "sim/predict/sharded_prediction.h"
#include "sim/report/perfetto.h"
#include "sim/report/sharded_report.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

void refuse_options_about_caps(const po::variables_map& values, const Scenario& scenario) {
    const auto refuse = [&](const char* option) {
        throw UsageError{fmt::format("--{}: expected a strategy with buckets, got {}", option,
                                     name_of(scenario.sharding->strategy))};
    };
    if (!values["bucket-cap"].defaulted()) {
        refuse("bucket-cap");
    }
    for (const char* option : {"for", "framework", "percentiles", "draws"}) {
        if (values.count(option) != 0) {
            refuse(option);
        }
    }
}

// Whether groups of any sizes are asked for.
bool wants_optimal_groups(const po::variables_map& values, const Scenario& scenario) {
    const std::string plan = text_or_empty(values, "plan");
    if (!plan.empty() && plan != "optimal") {
        throw UsageError{fmt::format("--plan: expected optimal, got {}", plan)};
    }
    if (!plan.empty() && scenario.sharding->strategy == ShardedStrategy::zero3) {
        throw UsageError{"--plan: expected a strategy with groups, got zero3"};
    }
    return !plan.empty();
}

std::optional<OptimalGroups> find_optimal_groups(const Scenario& scenario,
                                                 const ShardedInput& input,
                                                 const ShardedPrediction& prediction) {
    PercentLine line("searching groups");
    return optimal_groups(scenario, input, prediction, [&](double done) { line(done); });
}

ShardedPrediction predict_with_progress(const Scenario& scenario, const ShardedInput& input) {
    PercentLine line("simulating groupings");
    return predict_sharded(scenario, input, [&](double done) { line(done); });
}

// "layers.0, layers.1"; "root".
std::string name_of_group(const ShardGroup& group) {
    return group.is_root() ? "root" : fmt::format("{}", fmt::join(group.modules, ", "));
}

std::string trace_of(const std::string& name, const ShardedInput& input,
                     const std::vector<TraceProcess>& beside) {
    constexpr std::size_t most_instructions = 1'000'000;
    const Program program = sharded_program(input);
    if (program.instructions.size() > most_instructions) {
        throw InputError("--trace", "", "a step of at most 1,000,000 operations", "a longer one");
    }
    return perfetto_trace(name, input.step, program, sharded_simulation(input, program), beside,
                          transformed(make_shard_plan(input).groups, name_of_group));
}

}  // namespace

std::vector<StrategyRow> compared_strategies(const po::variables_map& values,
                                             const Scenario& scenario) {
    std::vector<ComparedStrategy> strategies;
    if (values.count("compare-strategies") == 0) {
        return {};
    }
    for (const std::string& name : split_at_commas(text_value(values, "compare-strategies"))) {
        strategies.push_back(choice_named(name, every<ComparedStrategy>, "--compare-strategies"));
    }
    return compare_strategies(scenario, strategies);
}

std::string sharded_trace_beside(const Scenario& scenario, const TraceProcess& real) {
    return trace_of("predicted: " + scenario.name, sharded_input(scenario), {real});
}

int predict_sharded_scenario(const CommandLine& line, const Scenario& scenario) {
    const po::variables_map& values = line.values;
    refuse_options_about_caps(values, scenario);
    const bool with_optimum = wants_optimal_groups(values, scenario);
    const ShardedInput input = sharded_input(scenario);
    const ShardedPrediction prediction = predict_with_progress(scenario, input);
    std::optional<OptimalGroups> optimum;
    if (with_optimum) {
        optimum = find_optimal_groups(scenario, input, prediction);
    }
    ShardedInput best = input;
    best.request = prediction.advised().request;
    const std::vector<ShardedSetting> settings = sharded_settings(best);
    const std::vector<StrategyRow> compared = compared_strategies(values, scenario);
    std::vector<OutputText> outputs;
    if (values.count("json") != 0) {
        Json json = to_json(scenario, prediction, settings);
        if (optimum) {
            json["optimal"] = to_json(*optimum);
        }
        if (!compared.empty()) {
            json["strategies"] = to_json(compared);
        }
        outputs.push_back({text_value(values, "json"), json_text(json)});
    }
    if (values.count("trace") != 0) {
        outputs.push_back({text_value(values, "trace"), trace_of(scenario.name, best, {})});
    }
    std::string optimal;
    if (optimum) {
        ShardedInput groups = input;
        groups.request = optimum->evaluation.request;
        optimal = optimal_text(prediction, *optimum, sharded_settings(groups));
    }
    write_outputs(outputs, text_report(scenario, prediction, settings) + optimal +
                               (compared.empty() ? "" : comparison_text(compared)));
    return exit_done;
}

}  // namespace bucketwise
