#include "cli/trace_command.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/prediction.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_link.h"
#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

// With the names and order of a model's gradients; its times are not looked at.
Workload workload_of(const std::string& model) {
    const std::vector<std::string_view>& names = model_names();
    if (std::find(names.begin(), names.end(), model) != names.end()) {
        ModelInput input;
        input.batch = 1;
        input.sequence_length = 1;
        return workload_from_model(make_model(model, input), DType::float32,
                                   {.device = device_preset("A100").value()});
    }
    const Json document = parse_json(read_text_file(model), model);
    return step_input(parse_scenario(document, model, read_text_file)).workload;
}

}  // namespace

CommandHelp trace_help(const std::string& command, std::string_view text,
                       const std::vector<OptionText>& own) {
    const std::vector<std::string_view>& names = model_names();
    std::vector<OptionText> options{
        {"output,o", "scenario file to write, - for standard output"},
        {"model",
         "whose gradients these are, to name them: a model that ships, or a scenario file"},
        {"link", "link file or preset to use instead of one fitted to the trace's all-reduces"},
        {"ranks", "of the run, where no trace tells"},
        {"trace", "write the replayed step beside the traced one, for ui.perfetto.dev"}};
    options.insert(options.end(), own.begin(), own.end());
    return {.usage = {"bucketwise import " + command + " TRACE... -o FILE [OPTIONS]"},
            .options = options_of(options),
            .text = text,
            .values = {{"model", {.names = {names.begin(), names.end()}}}},
            .positional = {"traces", -1},
            .required = {"traces", "output"},
            .wants = "traces, and -o with a file to write"};
}

TraceImportRequest trace_request(const CommandLine& line, const std::string& command) {
    const po::variables_map& values = line.values;
    check_files(values, {{"link"}, {"model"}, {"traces", "trace"}}, {{"output"}, {"trace"}});
    check_one_printed(values, "import " + command, "output", "trace");
    TraceImportRequest request;
    if (values.count("model") != 0) {
        request.model = workload_of(text_value(values, "model"));
    }
    request.ranks = optional_number(values, "ranks", {1, most_imported_ranks});
    return request;
}

int import_ranks(const CommandLine& line, const std::vector<TracedRank>& ranks,
                 const TraceImportRequest& request) {
    const po::variables_map& values = line.values;
    TraceImport imported = import_trace(ranks, request);
    const auto link =
        values.count("link") != 0 ? std::optional(text_value(values, "link")) : std::nullopt;
    const Scenario scenario = connect(imported, ranks.front(), link, read_text_file);
    std::vector<OutputText> outputs{{text_value(values, "output"), json_text(imported.scenario)}};
    const Replay replayed = replay(imported, scenario);
    if (const std::string trace = text_or_empty(values, "trace"); !trace.empty()) {
        const TraceProcess traced = traced_process(imported.typical, imported.file);
        outputs.push_back({trace, step_trace_beside(scenario, step_input(scenario),
                                                    scenario.sync.bucket_cap, traced)});
    }
    write_outputs(outputs, imported.scenario["name"].get<std::string>() + "\n\n" +
                               text_of(advise(imported, scenario, replayed)) +
                               text_of(imported.findings) + text_of(replayed));
    return exit_done;
}

}  // namespace bucketwise
