// bucketwise import kineto TRACE...: a PyTorch profiler's trace as a scenario that replays it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/prediction.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/progress.h"
#include "import/kineto/kineto_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "import/source/inflate.h"
#include "import/source/read_ahead.h"
#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view import_kineto_examples = R"(
examples:
  bucketwise import kineto rank0.json.gz -o scenario.json
  bucketwise import kineto rank0.json.gz rank1.json.gz --model resnet50 -o scenario.json
  bucketwise predict scenario.json

A trace is what torch.profiler writes with export_chrome_trace() or tensorboard_trace_handler(), as it is or compressed
with gzip, of some steps of DistributedDataParallel on CPUs or GPUs. With record_shapes=True it tells the most.
)";

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

// What a file's thread has read of it is shown by the one that asks.
TracedRank read_trace(const std::string& file) {
    const std::uint64_t size = size_of_file(file);
    std::atomic<std::uint64_t> read = 0;
    const ByteSource counted = [&read, blocks = blocks_of_file(file)](char* buffer,
                                                                      std::size_t room) {
        const std::size_t count = blocks(buffer, room);
        read += count;
        return count;
    };
    // Who writes to a pipe may never go on, so a thread could not be told to end.
    const ByteSource unpacked = inflated(counted, file);
    const ByteSource ahead = size > 0 ? read_ahead(unpacked) : unpacked;
    ReadingLine line(file, size);
    return traced_rank(read_kineto_trace(
        [&](char* buffer, std::size_t room) {
            line(read);
            return ahead(buffer, room);
        },
        file));
}

std::vector<TracedRank> read_traces(const std::vector<std::string>& files) {
    std::vector<TracedRank> ranks;
    ranks.reserve(files.size());
    for (const std::string& file : files) {
        ranks.push_back(read_trace(file));
    }
    return ranks;
}

}  // namespace

CommandHelp import_kineto_help() {
    const std::vector<std::string_view>& names = model_names();
    return {
        .usage = {"bucketwise import kineto TRACE... -o FILE [OPTIONS]"},
        .options = options_of(
            {{"output,o", "scenario file to write, - for standard output"},
             {"model",
              "whose gradients these are, to name them: a model that ships, or a scenario file"},
             {"link",
              "link file or preset to use instead of one fitted to the trace's all-reduces"},
             {"undisturbed",
              "trace of the same steps without communication (no_sync, or one rank), which tells "
              "how much kernels are slowed beside all-reduces"},
             {"ranks", "of the run, where no trace tells"},
             {"trace", "write the replayed step beside the traced one, for ui.perfetto.dev"}}),
        .text = import_kineto_examples,
        .values = {{"model", {.names = {names.begin(), names.end()}}}},
        .positional = {"traces", -1},
        .required = {"traces", "output"},
        .wants = "traces, and -o with a file to write"};
}

int run_import_kineto(const CommandLine& line) {
    const po::variables_map& values = line.values;
    check_files(values, {{"link"}, {"model"}, {"undisturbed", "trace"}, {"traces", "trace"}},
                {{"output"}, {"trace"}});
    check_one_printed(values, "import kineto", "output", "trace");
    TraceImportRequest request;
    if (values.count("model") != 0) {
        request.model = workload_of(text_value(values, "model"));
    }
    request.ranks = optional_number(values, "ranks", {1, most_imported_ranks});
    if (values.count("undisturbed") != 0) {
        request.undisturbed = read_trace(text_value(values, "undisturbed"));
    }
    const std::vector<TracedRank> ranks = read_traces(texts_value(values, "traces"));
    TraceImport imported = import_trace(ranks, request);
    const auto link =
        values.count("link") != 0 ? std::optional(text_value(values, "link")) : std::nullopt;
    const Scenario scenario = connect(imported, link, read_text_file);
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
