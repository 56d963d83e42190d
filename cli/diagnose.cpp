// bucketwise diagnose TRACE...: what a traced step should take, and where the rest went.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/diagnosis_page.h"
#include "cli/import_traces.h"
#include "cli/imported_model.h"
#include "cli/prediction.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/read_files.h"
#include "cli/shell/scenario_document.h"
#include "import/diagnosis/diagnosis.h"
#include "sim/link/link.h"
#include "sim/link/link_input.h"
#include "sim/report/number_text.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

constexpr std::string_view diagnose_text = R"(
examples:
  bucketwise diagnose rank0.json.gz
  bucketwise diagnose rank*.json.gz --expected scenario.json
  bucketwise diagnose rank0.json.gz --link ib-ndr-400 --html diagnosis.html
  bucketwise diagnose slow.sqlite --expected fast.json --json - --fail-above 10%

A trace is a file of torch.profiler, or nsys's export. What it is compared with: the scenario of a step that was as it
should be (bucketwise import kineto makes one of a trace), or of the same training by a model's name; a link; or, with
neither, what a trace shows by itself. Traces of several ranks tell which is late.
)";

struct DiagnoseOptions {
    std::vector<std::string> files;
    std::string expected;
    std::string model;
    std::string trace;
    std::string html;
    std::optional<std::string> json;
    std::optional<double> fail_above;
    ScenarioOptions scenario;  // of what is expected
};

std::vector<TracedRank> ranks_of(const std::vector<std::string>& files) {
    std::vector<TracedRank> ranks;
    for (const std::string& file : files) {
        std::ranges::move(reading({file}, FileKind::profiler_trace,
                                  [&] { return read_trace_file(file, kind_of_file(file)); }),
                          std::back_inserter(ranks));
    }
    return ranks;
}

void add_output(const std::string& file, const std::string& text,
                std::vector<OutputText>& outputs) {
    if (!file.empty()) {
        outputs.push_back({file, text});
    }
}

Sound sound_of(const DiagnoseOptions& options) {
    Sound sound;
    if (!options.expected.empty()) {
        const Json document = read_simulated_document(options.scenario, options.expected);
        sound.expected =
            parse_scenario(document, options.expected, read_text_file, StrategyKinds::all);
    }
    if (options.scenario.link && sound.expected) {
        sound.link = sound.expected->link;
    } else if (options.scenario.link) {
        const Json link = *options.scenario.link;
        sound.link = read_link({&link, "--link", ""}, read_text_file);
    }
    return sound;
}

// They change what is expected.
void refuse_without_effect(const DiagnoseOptions& options) {
    const ScenarioOptions& scenario = options.scenario;
    const auto refuse = [&](bool is_typed, const char* option) {
        if (options.expected.empty() && is_typed) {
            throw UsageError{
                fmt::format("diagnose: --{} has no effect without --expected", option)};
        }
    };
    refuse(scenario.device.has_value(), "device");
    refuse(scenario.batch.has_value(), "batch");
    refuse(scenario.sequence.has_value(), "sequence");
    refuse(scenario.dtype.has_value(), "dtype");
    refuse(scenario.strategy.has_value(), "strategy");
    refuse(!scenario.set.empty(), "set");
}

int run_diagnose(const DiagnoseOptions& options) {
    refuse_without_effect(options);
    const std::string json = options.json.value_or("");
    check_one_printed("diagnose", "--html and --trace", options.html, options.trace);
    check_one_printed("diagnose", "--json and --html", json, options.html);
    check_one_printed("diagnose", "--json and --trace", json, options.trace);
    const Sound sound = sound_of(options);
    TraceImportRequest request{.ranks = options.scenario.ranks};
    if (!options.model.empty()) {
        request.model = imported_model(options.model);
    }
    const Diagnosed found = diagnose(ranks_of(options.files), request, sound);
    std::vector<OutputText> outputs;
    if (!options.trace.empty() || !options.html.empty()) {
        Scenario shown = found.scenario;
        shown.sync = found.mended.sync;
        shown.name = found.scenario.name + ", as it should be";
        const std::string trace = step_trace_beside(
            shown, found.mended.input, shown.sync.bucket_cap, found.mended.sharding, found.traced);
        add_output(options.html, diagnosis_page(found.diagnosis, found.scenario.name, trace),
                   outputs);
        add_output(options.trace, trace, outputs);
    }
    if (options.json) {
        outputs.push_back({*options.json, json_text(diagnosis_json(found.diagnosis))});
    }
    write_outputs(outputs, text_of(found.diagnosis));
    const bool fails = options.fail_above && found.diagnosis.longer() > *options.fail_above;
    return fails ? exit_not_held : exit_done;
}

}  // namespace

CommandHelp diagnose_help() {
    const auto o = std::make_shared<DiagnoseOptions>();
    return {
        .usage = {"bucketwise diagnose TRACE... [OPTIONS]"},
        .options = options_of(
            {{"expected",
              "scenario of the step as it should be: imported from a sound trace, written, or a "
              "model's name with --device, --batch and --ranks",
              o->expected},
             {"model",
              "model whose gradients these are, to name them: a model that ships, a scenario "
              "file, or a config.json",
              o->model, scenarios()},
             {"trace", "write the expected step beside the traced one, for ui.perfetto.dev",
              o->trace},
             {"html", "write a page with the diagnosis and both steps, one above the other",
              o->html},
             {"json", "write the diagnosis as JSON; - is standard output", o->json},
             {"fail-above",
              "exit with 3 where the step is longer than expected by more, such as 10%",
              {o->fail_above, Percentage{{0, 100}}}}},
            simulated_rows(o->scenario)),
        .text = diagnose_text,
        .positional = {"traces", -1, o->files},
        .required = {"traces"},
        .wants = "traces, got none",
        .run = [o](const CommandLine&) { return run_diagnose(*o); }};
}

}  // namespace bucketwise
