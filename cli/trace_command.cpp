#include "cli/trace_command.h"

#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/imported_model.h"
#include "cli/prediction.h"
#include "cli/sharded_predict.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_caveats.h"
#include "import/replay/trace_comparison.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "sim/report/number_text.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

TraceImportRequest request_of(const po::variables_map& values, const TraceReader& read) {
    TraceImportRequest request;
    if (values.count("model") != 0) {
        request.model = imported_model(text_value(values, "model"));
    }
    request.ranks = optional_number(values, "ranks", {1, most_imported_ranks});
    if (values.count("undisturbed") != 0) {
        request.undisturbed =
            plain_run(std::move(read({text_value(values, "undisturbed")}).front()));
    }
    return request;
}

}  // namespace

CommandHelp trace_help(const std::string& command, std::string_view text,
                       const std::vector<OptionText>& own) {
    const std::vector<std::string_view>& names = model_names();
    std::vector<OptionText> options{
        {"output,o", "scenario file to write, - for standard output"},
        {"model",
         "whose gradients these are, to name them: a model that ships, a scenario file, or a "
         "config.json"},
        {"link", "link file or preset to use instead of one fitted to the trace's all-reduces"},
        {"undisturbed",
         "trace of the same steps without communication (no_sync, or one rank), which tells how "
         "much kernels are slowed beside all-reduces"},
        {"compare",
         "another trace, after a change: where the milliseconds went; without -o nothing else"},
        {"ranks", "of the run, where no trace tells"},
        {"trace", "write the replayed step beside the traced one, for ui.perfetto.dev"}};
    options.insert(options.end(), own.begin(), own.end());
    return {.usage = {"bucketwise import " + command + " TRACE... -o FILE [OPTIONS]",
                      "bucketwise import " + command + " TRACE... --compare TRACE [OPTIONS]"},
            .options = options_of(options),
            .text = text,
            .values = {{"model", {.names = {names.begin(), names.end()}}}},
            .positional = {"traces", -1},
            .required = {"traces"},
            .wants = "traces, and -o with a file to write"};
}

int import_traces(const CommandLine& line, const std::string& command, FileKind kind,
                  const TraceReader& reader) {
    const TraceReader read = [&](const std::vector<std::string>& files) {
        return reading(files, kind, [&] { return reader(files); });
    };
    const po::variables_map& values = line.values;
    const std::string words = "import " + command;
    const std::string other = text_or_empty(values, "compare");
    if (values.count("output") == 0 && other.empty()) {
        throw UsageError{
            fmt::format("{0}: expected -o with a file to write, or --compare with another trace; "
                        "see bucketwise {0} --help",
                        words)};
    }
    for (const char* const option : {"trace", "link", "undisturbed"}) {
        if (values.count("output") == 0 && values.count(option) != 0) {
            throw UsageError{fmt::format("{}: --{} has no effect without -o", words, option)};
        }
    }
    check_one_printed(values, words, "output", "trace");
    const TraceImportRequest request = request_of(values, read);
    TraceImport imported = import_trace(read(texts_value(values, "traces")), request);
    std::string text;
    if (!other.empty()) {
        const TraceImport after =
            import_trace(read({other}), {.model = request.model, .ranks = request.ranks});
        text = comparison_text(imported.summary, imported.file, after.summary, after.file);
    }
    if (values.count("output") == 0) {
        write_outputs({}, text);
        return exit_done;
    }
    const auto link =
        values.count("link") != 0 ? std::optional(text_value(values, "link")) : std::nullopt;
    const Scenario scenario = connect(imported, link, read_text_file);
    const Replay replayed = replay(imported, scenario);
    state_caveats(replayed, imported);
    std::vector<OutputText> outputs{{text_value(values, "output"), json_text(imported.scenario)}};
    if (const std::string trace = text_or_empty(values, "trace"); !trace.empty()) {
        const TraceProcess traced = traced_process(imported.typical, imported.file);
        outputs.push_back({trace, imported.sharding
                                      ? sharded_trace_beside(scenario, traced)
                                      : step_trace_beside(scenario, step_input(scenario),
                                                          scenario.sync.bucket_cap, traced)});
    }
    const TraceAdvice advice = advise(imported, scenario, replayed);
    text += fmt::format("{}{}\n\n{}\n\n{}{}{}", text.empty() ? "" : "\n",
                        wrapped(verdict_text(advice)), imported.scenario["name"].get<std::string>(),
                        text_of(advice), text_of(imported.findings), text_of(replayed));
    write_outputs(outputs, text);
    return exit_done;
}

}  // namespace bucketwise
