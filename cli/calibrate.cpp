// bucketwise calibrate MEASUREMENTS...: link and computing of the measured machine.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/calibration.h"
#include "calibrate/fit/captured_times.h"
#include "calibrate/fit/inverse_fit.h"
#include "cli/commands.h"
#include "cli/measured_files.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "cli/steps_csv.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/transformed.h"
#include "sim/link/link.h"
#include "sim/link/link_input.h"
#include "sim/scenario/document_edit.h"
#include "sim/scenario/scenario.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

constexpr std::string_view calibrate_examples = R"(
examples:
  bucketwise calibrate measurements.jsonl -o link.json
  bucketwise calibrate on_2_ranks.jsonl on_4_ranks.jsonl -o link.json
  bucketwise calibrate measurements.jsonl -o link.json --scenario-output calibrated.json
  bucketwise calibrate all_reduces.jsonl -o link.json --captured captured.json --scenario-output scenario.json
  bucketwise calibrate --steps steps.csv --scenario scenarios/compare_ddp_core.json -o link.json

A steps file holds two columns: bucket_cap_mib, and step_ms or backward_ms. Several --steps, each with its
--scenario, are fitted together: the same machine with other strategies.
)";

struct CalibrateOptions {
    std::vector<std::string> measurements;
    std::string output;
    std::optional<std::string> scenario_output;
    std::string captured;
    std::vector<std::string> steps;
    std::vector<std::string> scenarios;
    std::optional<std::int64_t> processors;
    std::optional<std::string> fit;
};

// Results of a fit, to measurements or to steps.
struct Outputs {
    Json link;
    std::optional<Json> scenario;
    std::optional<Json> fit;
    std::string report;
};

void write(const CalibrateOptions& options, const Outputs& outputs) {
    std::vector<OutputText> files;
    const auto add = [&](const std::optional<std::string>& file,
                         const std::optional<Json>& document) {
        if (file && document) {
            files.push_back({*file, json_text(*document)});
        }
    };
    add(options.output, outputs.link);
    add(options.scenario_output, outputs.scenario);
    add(options.fit, outputs.fit);
    write_outputs(files, outputs.report);
}

// The captured step with the link and with the times of undisturbed computing. Throws InputError.
Json captured_scenario(const std::string& file, const LinkParameters& link, std::string& report) {
    Json document = parse_json(read_text_file(file), file);
    set_at(document, "/cluster/link", link_json(link), "--captured");
    const Scenario scenario = parse_scenario(document, file, read_text_file);
    const std::optional<AloneTimes> alone = times_alone(scenario);
    if (!alone) {
        throw InputError(file, "/workload",
                         "gradients with ready_ms, not under torch.compile, for --captured",
                         "another step");
    }
    report += fmt::format(
        "captured backward of {:.4g} ms: {:.3g} ms of it, caused by communication, are taken out; "
        "simulated with communication again, no operation is more than {:.2g} % off\n",
        to_ms(alone->workload.backward + alone->slowed), to_ms(alone->slowed), 100 * alone->miss);
    return with_times(std::move(document), *alone);
}

Outputs from_measurements(const CalibrateOptions& options) {
    const std::vector<std::string>& files = options.measurements;
    const std::string& captured = options.captured;
    const std::vector<MeasuredRun> runs = read_runs(files);
    const std::optional<MeasuredScenario> measured = measured_scenario(runs.front());
    const Calibration calibration = calibrate(
        runs, measured ? std::optional(measured->scenario) : std::nullopt, options.processors);
    if (options.scenario_output && !calibration.compute && captured.empty()) {
        throw InputError(files.front(), "", "compute records, for --scenario-output", "none");
    }
    Outputs outputs{.link = link_json(calibration.link),
                    .scenario = {},
                    .fit = fit_json(calibration),
                    .report = calibration_report(calibration)};
    if (!captured.empty()) {
        outputs.scenario = captured_scenario(captured, calibration.link, outputs.report);
    } else if (calibration.compute) {
        outputs.scenario = calibrated_scenario(measured->document, calibration);
    }
    return outputs;
}

// Steps cannot tell the parts of a topology apart. Between GPUs they tell what overlapping costs.
void refuse_topology(const Json& document, const Scenario& scenario, const std::string& file) {
    const Json::json_pointer topology("/cluster/link/topology");
    if (document.contains(topology) && !step_input(scenario).link.assumes_interference) {
        throw InputError(file, topology.to_string(), "a link whose segments can be fitted",
                         "a topology");
    }
}

Outputs from_steps(const CalibrateOptions& options) {
    const std::vector<std::string>& files = options.steps;
    const std::vector<std::string>& scenarios = options.scenarios;
    if (files.size() != scenarios.size()) {
        throw UsageError{"calibrate: expected a --scenario for each --steps, in the same order"};
    }
    if (!options.measurements.empty() || options.fit || options.processors) {
        throw UsageError{
            "calibrate: expected either measurement files or --steps, which go without --fit and "
            "--processors; got both"};
    }
    std::vector<ObservedSteps> observed;
    std::vector<Json> documents;
    for (std::size_t i = 0; i < files.size(); ++i) {
        documents.push_back(parse_json(read_text_file(scenarios[i]), scenarios[i]));
        inline_link(documents.back(), scenarios[i], read_text_file);
        Scenario scenario = parse_scenario(documents.back(), scenarios[i], read_text_file);
        refuse_topology(documents.back(), scenario, scenarios[i]);
        StepsCsv csv = read_steps_csv(files[i]);
        observed.push_back({.file = files[i],
                            .scenario = std::move(scenario),
                            .part = csv.part,
                            .steps = std::move(csv.steps)});
    }
    PercentLine line("looking for the machine of these steps");
    InverseFit fit = fit_to_steps(observed, [&](double done) { line(done); });
    fit.link.name = "fitted to steps";
    fit.link.provenance = {
        .backend = fit.link.provenance.backend,
        .ranks = observed.front().scenario.group.ranks,
        .smallest_message = {},
        .largest_message = {},
        .hardware = fit.link.provenance.hardware,
        .versions = fit.link.provenance.versions,
        .date = utc_now().substr(0, 10),
        .samples = static_cast<std::int64_t>(fit.steps.size()),
        .source = fmt::format("bucketwise calibrate --steps {}",
                              fmt::join(transformed(files, file_name), " --steps "))};
    return {.link = link_json(fit.link),
            .scenario = fitted_scenario(documents.front(), observed.front().scenario,
                                        observed.front().part, fit),
            .fit = {},
            .report = inverse_fit_report(fit)};
}

int run_calibrate(const CalibrateOptions& options) {
    const bool inverse = !options.steps.empty() || !options.scenarios.empty();
    if ((!inverse && options.measurements.empty()) || options.output.empty()) {
        throw UsageError{
            "calibrate: expected measurement files, or --steps and --scenario, and -o with a file "
            "to write; see bucketwise calibrate --help"};
    }
    if (!options.captured.empty() && (inverse || !options.scenario_output)) {
        throw UsageError{
            "calibrate: --captured: expected measurement files and --scenario-output beside it"};
    }
    write(options, inverse ? from_steps(options) : from_measurements(options));
    return exit_done;
}

}  // namespace

CommandHelp calibrate_help() {
    const auto o = std::make_shared<CalibrateOptions>();
    return {
        .usage = {"bucketwise calibrate MEASUREMENTS... -o FILE [OPTIONS]",
                  "bucketwise calibrate --steps FILE --scenario FILE -o FILE"},
        .options = options_of(
            {{"output,o", "link file to write, for --link", o->output},
             {"scenario-output",
              "scenario file to write: the measured scenario with this link and the measured times "
              "of its operations",
              o->scenario_output},
             {"captured",
              "scenario of bucketwise.torch, timed while its own buckets travelled: "
              "--scenario-output gets its times without that disturbance",
              o->captured},
             {"steps", "CSV file of step times at several caps, to fit; may be repeated", o->steps},
             {"scenario", "scenario of those steps; one per --steps", o->scenarios},
             {"processors",
              "processors of the one machine that ran all ranks, Gloo on loopback; fewer than "
              "ranks: ranks took turns, and the link says so",
              {o->processors, WholeNumbers{1, most_processors}}},
             {"fit", "file to write the details of the fit to, as JSON", o->fit}}),
        .text = calibrate_examples,
        .positional = {"measurements", -1, o->measurements},
        .run = [o](const CommandLine&) { return run_calibrate(*o); }};
}

}  // namespace bucketwise
