// bucketwise compare SCENARIO: the steps that were measured beside their predictions.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "calibrate/comparison/sharded_comparison.h"
#include "calibrate/comparison/step_comparison.h"
#include "calibrate/fit/calibration.h"
#include "cli/commands.h"
#include "cli/measured_files.h"
#include "cli/prediction.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "sim/base/error.h"
#include "sim/link/link_input.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view compare_examples = R"(
examples:
  bucketwise compare scenarios/transformer_small.json --link link.json --measurements measurements.jsonl
  bucketwise compare calibrated.json --measurements measurements.jsonl -o comparison.json

A scenario that knows its computing only from a device takes the times of its operations from the
compute records of the measurements. Measured steps are only ever compared with.
)";

po::options_description compare_options() {
    po::options_description options("options", 100);
    add_options(options,
                {{"measurements", "file that bucketwise measure wrote"},
                 {"output,o", "file to write the comparison to, as JSON"},
                 {"trace",
                  "write the step at the chosen cap, predicted beside measured, as a "
                  "trace for ui.perfetto.dev"},
                 {"details", "print all: every cap, where the error comes from, what would help",
                  no_value}});
    add_scenario_options(options);
    add_workload_options(options);
    add_options(options, {ranks_option, help_option});
    return options;
}

bool knows_only_its_device(const Scenario& scenario) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    return model != nullptr && !model->forward && model->forward_operations.empty();
}

// With the computing that the run measured, where the scenario has none of its own.
Scenario scenario_to_compare(Json document, const std::string& file, const MeasuredRun& run) {
    inline_link(document, file, read_text_file);
    Scenario scenario = parse_scenario(document, file, read_text_file, StrategyKinds::all);
    if (!knows_only_its_device(scenario)) {
        return scenario;
    }
    const auto compute = fit_compute(run, scenario);
    if (!compute) {
        return scenario;
    }
    const Json variation = document.value("variation", Json());
    Json timed = with_measured_computing(std::move(document), *compute);
    if (!variation.is_null()) {
        timed["variation"] = variation;
    }
    return parse_scenario(timed, file, read_text_file, StrategyKinds::all);
}

constexpr const char* no_compute_records =
    "the measurements hold no compute records: computing is the scenario's device's";

int compare_sharded(const po::variables_map& values, const Scenario& scenario,
                    const MeasuredRun& run) {
    for (const char* option : {"trace", "details"}) {
        if (values.count(option) != 0) {
            throw UsageError{fmt::format("--{}: expected a strategy with buckets, got {}", option,
                                         name_of(scenario.sharding->strategy))};
        }
    }
    ShardedComparison comparison = compare_settings(scenario, run);
    if (knows_only_its_device(scenario)) {
        comparison.notes.emplace_back(no_compute_records);
    }
    std::vector<OutputText> outputs;
    if (values.count("output") != 0) {
        outputs.push_back({text_value(values, "output"), json_text(to_json(comparison))});
    }
    write_outputs(outputs, comparison_report(comparison));
    return exit_done;
}

}  // namespace

CommandHelp compare_help() {
    return {.usage = {"bucketwise compare SCENARIO --measurements FILE [OPTIONS]"},
            .options = compare_options(),
            .text = compare_examples,
            .arguments = scenarios(),
            .required = {"scenario", "measurements"},
            .wants = "a scenario file and --measurements with a file"};
}

int run_compare(const CommandLine& line) {
    const po::variables_map& values = line.values;
    check_one_printed(values, "compare", "output", "trace");
    const std::string& file = text_value(values, "scenario");
    const std::string output = text_or_empty(values, "output");
    const std::string trace = text_or_empty(values, "trace");
    const Json document = read_simulated_document(values, file);
    const MeasuredRun run = read_runs({text_value(values, "measurements")}).front();
    const Scenario scenario = scenario_to_compare(document, file, run);
    if (scenario.sharding) {
        return compare_sharded(values, scenario, run);
    }
    const Prediction prediction =
        predict_with_progress(scenario, step_input(scenario), {}, {}).prediction;
    Comparison comparison = compare_steps(scenario, run, prediction);
    if (knows_only_its_device(scenario)) {
        comparison.notes.emplace_back(no_compute_records);
    }
    std::vector<OutputText> outputs;
    if (!output.empty()) {
        outputs.push_back({output, json_text(to_json(comparison))});
    }
    if (!trace.empty()) {
        const MeasuredCap& chosen = comparison.points[comparison.chosen].measured;
        outputs.push_back(
            {trace, step_trace_beside(scenario, step_input(scenario), chosen.asked_cap(),
                                      measured_process(comparison))});
    }
    write_outputs(outputs, comparison_report(comparison, values.count("details") != 0));
    return exit_done;
}

}  // namespace bucketwise
