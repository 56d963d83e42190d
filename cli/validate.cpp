// bucketwise validate SCENARIO: measures, calibrates, predicts, compares and plots into one folder.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/comparison/step_comparison.h"
#include "calibrate/fit/calibration.h"
#include "cli/commands.h"
#include "cli/deciding_rounds.h"
#include "cli/measure.h"
#include "cli/measured_files.h"
#include "cli/prediction.h"
#include "cli/python_script.h"
#include "cli/ranks/measurement_file.h"
#include "cli/shell/files.h"
#include "cli/shell/read_files.h"
#include "cli/validation_report.h"
#include "sim/base/error.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view validate_text = R"(
Runs the scenario on real ranks, fits link and computing to isolated measurements, predicts the step
at every measured setting, and reports the error and its causes. Steps are compared with, never fitted
to. The folder then holds

  report.html, report.md       to read and to send on
  measurements.jsonl           every sample
  link.json, scenario.json     calibrated, to predict with
  comparison.json, prediction.json, fit.json, trace.json
  *.svg, *.png                 the pictures (python3 with matplotlib)

examples:
  bucketwise validate scenarios/transformer_small.json -o validation
  bucketwise validate scenarios/transformer_small.json --ranks 2 --link-rate 1gbit -o at_1gbit
  bucketwise validate scenarios/transformer_small_fsdp.json --link-rate 1gbit -o fsdp
  bucketwise validate scenarios/transformer_small.json -o validation --resume
)";

constexpr const char* measurements_name = "measurements.jsonl";

std::vector<Picture> pictures(const Scenario& scenario) {
    const bool shards = scenario.sharding.has_value();
    const std::string setting = shards ? "setting" : "cap";
    return {{"step_time",
             fmt::format("Step time {}, predicted and measured",
                         shards ? "of each setting" : "over bucket cap"),
             ""},
            {"accuracy", "How far the prediction is off at each " + setting, ""},
            {"timeline", "One step, predicted and measured", ""},
            {"error_causes", fmt::format("The error at each {}, by cause", setting), ""},
            {"link_fit",
             fmt::format("{} time over message size, measured and fitted",
                         shards ? "Collective" : "All-reduce"),
             ""}};
}

// Refuses to overwrite inputs before anything is measured.
void check_outputs(const std::string& folder) {
    std::vector<std::string> outputs;
    for (const char* name : {"link.json", "scenario.json", "fit.json", "prediction.json",
                             "comparison.json", "trace.json", "report.md", "report.html"}) {
        outputs.push_back(fmt::format("{}/{}", folder, name));
    }
    for (const Picture& picture : pictures({})) {
        for (const char* ending : {"svg", "png"}) {
            outputs.push_back(fmt::format("{}/{}.{}", folder, picture.name, ending));
        }
    }
    refuse_overwriting(outputs);
}

// A run that ended before it had measured anything may have left an empty file.
bool holds_files(const fs::path& folder) {
    std::error_code error;
    const fs::directory_iterator entries(folder, error);
    return std::ranges::any_of(begin(entries), end(entries), [&](const fs::directory_entry& entry) {
        return entry.path().filename() != measurements_name || !entry.is_regular_file(error) ||
               entry.file_size(error) != 0;
    });
}

// Called by the process that will have the file; ranks of another launcher may be elsewhere. True
// if the folder is new.
bool prepare_folder(const std::string& folder, bool resume) {
    std::error_code error;
    if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
        throw InputError(folder, "", "a folder", "a file");
    }
    const bool is_new = !fs::exists(folder, error);
    if (is_new) {
        fs::create_directory(folder, error);
        if (error) {
            throw InputError(folder, "", "a folder that can be made", error.message());
        }
    }
    if (!resume && holds_files(folder)) {
        throw InputError(folder, "", "a new or empty folder, or --resume", "one that holds files");
    }
    return is_new;
}

// Removes a new folder that stays empty.
class NewFolder {
  public:
    NewFolder(std::string path, bool is_new) : path_(std::move(path)), is_new_(is_new) {}
    ~NewFolder() {
        std::error_code ignored;
        if (is_new_ && fs::is_empty(path_, ignored)) {
            fs::remove(path_, ignored);
        }
    }
    NewFolder(const NewFolder&) = delete;
    NewFolder& operator=(const NewFolder&) = delete;

  private:
    std::string path_;
    bool is_new_;
};

std::vector<Picture> pictures_in(const std::string& folder, const Scenario& scenario) {
    std::vector<Picture> drawn = pictures(scenario);
    std::error_code ignored;
    for (Picture& picture : drawn) {
        const std::string file = fmt::format("{}/{}.svg", folder, picture.name);
        if (fs::exists(file, ignored)) {
            picture.svg = read_text_file(file);
        }
    }
    return drawn;
}

// Finds before measuring whether something will be missing afterwards.
void check_enough(const MeasureOptions& options) {
    const auto count = [&](Protocol protocol) {
        return std::ranges::count(options.items, protocol, &Item::protocol);
    };
    if (options.scenario.group.ranks < 2) {
        throw UsageError{"validate: expected at least 2 ranks, as one has nobody to talk to"};
    }
    const bool shards = options.scenario.sharding.has_value();
    const auto sizes = shards
                           ? std::max(count(Protocol::all_gather), count(Protocol::reduce_scatter))
                           : count(Protocol::all_reduce);
    if (sizes < 2) {
        throw UsageError{
            fmt::format("validate: expected {} of at least two sizes among what is measured",
                        shards ? "all-gathers or reduce-scatters" : "all-reduces")};
    }
    if (count(Protocol::compute) == 0 || count(Protocol::step) == 0) {
        throw UsageError{"validate: expected compute and steps among what is measured"};
    }
}

bool is_enough_to_conclude(const std::string& file) {
    const std::vector<Measurement> records = read_measurements(file).records;
    return std::ranges::any_of(records,
                               [](const Measurement& record) {
                                   return std::holds_alternative<StepRecord>(record);
                               }) &&
           advice_of(records, file).has_value();
}

// The commands after the measurement that give the same files.
constexpr std::array<const char*, 4> repeating{
    "bucketwise calibrate measurements.jsonl -o link.json --scenario-output scenario.json "
    "--fit fit.json",
    "bucketwise predict scenario.json --json prediction.json",
    "bucketwise compare scenario.json --measurements measurements.jsonl -o comparison.json",
    "python3 plots/plot.py ."};

// Everything after the measurement. `interrupted`: why it ended early; empty: it did not.
int conclude(const std::string& folder, const std::string& interrupted) {
    const auto path = [&](const char* name) { return folder + "/" + name; };
    const auto write = [&](const char* name, const std::string& text) {
        write_text_file(path(name), text);
    };
    const MeasuredRun run = read_runs({path(measurements_name)}).front();
    const std::optional<MeasuredScenario> measured = measured_scenario(run);
    if (!measured) {
        throw InputError(run.file, "", "measurements of a scenario", "none");
    }
    ValidationReport report;
    report.calibration = calibrate({run}, measured->scenario);
    if (!report.calibration.compute) {
        throw InputError(run.file, "", "compute records, which a prediction needs", "none");
    }
    const Json calibrated = calibrated_scenario(measured->document, report.calibration);
    write("link.json", json_text(link_json(report.calibration.link)));
    write("scenario.json", json_text(calibrated));
    write("fit.json", json_text(fit_json(report.calibration)));

    const Scenario scenario =
        parse_scenario(calibrated, path("scenario.json"), read_text_file, StrategyKinds::all);
    const StepInput input = compared_input(scenario, run);
    const auto [prediction, settings, ends, knobs] =
        predict_with_progress(scenario, input, {}, usual_destinations(scenario.sync));
    report.prediction = text_report(scenario, prediction, settings, ends, Detail::full);
    write("prediction.json", json_text(to_json(scenario, prediction, settings, ends)));

    report.comparison = compare_steps(scenario, run, prediction);
    if (!interrupted.empty()) {
        report.comparison.notes.push_back(interrupted + ": judged by what was measured until then");
    }
    write("comparison.json", json_text(to_json(report.comparison)));
    if (can_be_traced(input)) {
        const MeasuredSetting& chosen = report.comparison.points[report.comparison.chosen].measured;
        write("trace.json", step_trace_beside(scenario, input, chosen.asked_cap(), chosen.sharding,
                                              measured_process(report.comparison)));
    }
    const auto why_not = draw_plots(folder);
    report.pictures = pictures_in(folder, scenario);
    if (why_not) {
        const bool has_older = std::ranges::any_of(
            report.pictures, [](const Picture& picture) { return !picture.svg.empty(); });
        report.comparison.notes.push_back(
            "there are no pictures: " + *why_not +
            (has_older ? "; those in the folder are of an earlier run" : ""));
        report.pictures = pictures(scenario);
    }
    report.commands = {report.comparison.command};
    report.commands.insert(report.commands.end(), repeating.begin(), repeating.end());
    write("report.md", markdown_report(report));
    write("report.html", html_report(report));
    write_output("-", comparison_report(report.comparison, false) +
                          fmt::format("\n{}: report.html to read and to send on, link.json and "
                                      "scenario.json to predict with\n",
                                      folder));
    return exit_done;
}

int run_validate(const MeasureRequest& request, const CommandLine& line) {
    const std::string& folder = request.output;
    if (folder.empty() || folder == "-") {
        throw UsageError{
            "validate: expected -o and a folder to write to; see bucketwise validate --help"};
    }
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const MeasureOptions options =
        measure_options(request, line, identity, folder + "/" + measurements_name);
    check_enough(options);
    check_outputs(folder);
    const bool has_file = !identity || identity->rank == 0;
    const NewFolder created(folder, has_file && prepare_folder(folder, options.resume));
    const MeasureOutcome outcome = measure(options, identity, Interruption::ends_well);
    if (!outcome.interrupted.empty() && !is_enough_to_conclude(outcome.file)) {
        throw std::runtime_error(
            fmt::format("{} before there was enough to conclude from; {} keeps what was measured, "
                        "--resume goes on",
                        outcome.interrupted, outcome.file));
    }
    return outcome.file.empty() ? outcome.exit_code : conclude(folder, outcome.interrupted);
}

}  // namespace

CommandHelp validate_help() {
    const auto o = std::make_shared<MeasureRequest>();
    return {.usage = {"bucketwise validate SCENARIO -o FOLDER [OPTIONS]"},
            .options = measuring_options(
                *o, "folder for all files; made if it is missing, and empty unless --resume",
                "how long the validation takes, such as 2min; every round goes to the settings "
                "between which nothing is decided yet, and it ends early once all is; default: "
                "3min, unless "
                "--rounds is given"),
            .text = validate_text,
            .arguments = scenarios(),
            .positional = {.value = o->file},
            .required = {"scenario"},
            .wants = "a scenario file or a model's name, got none",
            .run = [o](const CommandLine& line) { return run_validate(*o, line); }};
}

}  // namespace bucketwise
