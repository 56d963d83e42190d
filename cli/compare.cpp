// bucketwise compare SCENARIO: measured steps beside their predictions.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/comparison/step_comparison.h"
#include "calibrate/fit/calibration.h"
#include "cli/commands.h"
#include "cli/measured_files.h"
#include "cli/prediction.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "sim/base/error.h"
#include "sim/link/link_input.h"

namespace bucketwise {
namespace {

constexpr std::string_view compare_examples = R"(
examples:
  bucketwise compare scenarios/transformer_small.json --link link.json --measurements measurements.jsonl
  bucketwise compare calibrated.json --measurements measurements.jsonl -o comparison.json

A scenario whose computing is only a device's takes the times of its operations from the compute
records of the measurements. Measured steps are compared with, never fitted to.
)";

struct CompareOptions {
    std::string file;
    std::string measurements;
    std::optional<std::string> output;
    std::optional<std::string> trace;
    bool details = false;
    ScenarioOptions scenario;
};

bool knows_only_its_device(const Scenario& scenario) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    return model != nullptr && !model->forward && model->forward_operations.empty();
}

// With the measured computing, where the scenario has none of its own.
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

int run_compare(const CompareOptions& options) {
    check_one_printed("compare", "--output and --trace", options.output, options.trace);
    const Json document = read_simulated_document(options.scenario, options.file);
    const MeasuredRun run = read_runs({options.measurements}).front();
    const Scenario scenario = scenario_to_compare(document, options.file, run);
    const StepInput input = compared_input(scenario, run);
    Comparison comparison =
        compare_steps(scenario, run, predict_with_progress(scenario, input, {}, {}).prediction);
    if (knows_only_its_device(scenario)) {
        comparison.notes.emplace_back(
            "the measurements hold no compute records: computing is the scenario's device's");
    }
    std::vector<OutputText> outputs;
    if (options.output) {
        outputs.push_back({*options.output, json_text(to_json(comparison))});
    }
    if (options.trace) {
        const MeasuredSetting& chosen = comparison.points[comparison.chosen].measured;
        outputs.push_back(
            {*options.trace, step_trace_beside(scenario, input, chosen.asked_cap(), chosen.sharding,
                                               measured_process(comparison))});
    }
    write_outputs(outputs, comparison_report(comparison, options.details));
    return exit_done;
}

}  // namespace

CommandHelp compare_help() {
    const auto o = std::make_shared<CompareOptions>();
    return {.usage = {"bucketwise compare SCENARIO --measurements FILE [OPTIONS]"},
            .options = options_of(
                {{"measurements", "file of bucketwise measure", o->measurements},
                 {"output,o", "file to write the comparison to, as JSON", o->output},
                 {"trace",
                  "write the step at the chosen setting, predicted beside measured, for "
                  "ui.perfetto.dev",
                  o->trace},
                 {"details", "print every setting, the sources of the error, and what would help",
                  o->details}},
                simulated_rows(o->scenario)),
            .text = compare_examples,
            .arguments = scenarios(),
            .positional = {.value = o->file},
            .required = {"scenario", "measurements"},
            .wants = "a scenario file and --measurements with a file",
            .run = [o](const CommandLine&) { return run_compare(*o); }};
}

}  // namespace bucketwise
