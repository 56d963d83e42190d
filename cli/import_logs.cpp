// bucketwise import chakra TRACE..., bucketwise import flight-recorder DUMP...: lists of
// collectives as a scenario of their buckets.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/imported_model.h"
#include "cli/python_script.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "import/chakra/chakra_trace.h"
#include "import/collectives/log_import.h"
#include "import/flight_recorder/flight_recorder.h"
#include "import/source/byte_source.h"
#include "import/source/findings.h"
#include "import/source/inflate.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/report/number_text.h"
#include "sim/report/verdict.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

constexpr std::string_view chakra_text = R"(
examples:
  bucketwise import chakra rank0.et --ranks 8 --link nvlink-h100-8 -o scenario.json
  bucketwise import chakra execution_trace.json --link eth-10g --forward-ms 30 --backward-ms 60 -o scenario.json
  bucketwise predict scenario.json

A trace is Chakra's own (.et, or JSON by chakra_jsonizer), or one of torch.profiler's ExecutionTraceObserver, compressed
with gzip or not. Where its nodes have durations, these say when gradients are ready. No trace says how long
communication takes.
)";

constexpr std::string_view flight_recorder_text = R"(
examples:
  bucketwise import flight-recorder nccl_trace_rank_0 nccl_trace_rank_1 --link nvlink-h100-8 -o scenario.json
  bucketwise import flight-recorder nccl_trace_rank_0 --model resnet50 -o scenario.json
  bucketwise predict scenario.json

A dump is the pickle that PyTorch writes when a collective times out, or the result of _dump_nccl_trace() or
_dump_fr_trace() of torch._C._distributed_c10d, as a pickle or JSON, with TORCH_FR_BUFFER_SIZE set. With
TORCH_NCCL_ENABLE_TIMING it holds the times of collectives, and no --link is needed. python3 reads the pickle; without
Python, give JSON.
)";

struct LogOptions {
    std::vector<std::string> files;
    std::string output;
    std::string model;
    std::optional<std::string> link;
    LogImportRequest request;
};

std::vector<OptionText> log_rows(LogOptions& o) {
    return {{"output,o", "scenario file to write; - is standard output", o.output},
            {"model",
             "model whose gradients these are, to tell buckets apart: a model that ships, a "
             "scenario file, or a config.json",
             o.model, scenarios()},
            {"link", "link file or preset, where no log says how long all-reduces take", o.link},
            {"group", "process group whose all-reduces are the gradients'", o.request.group},
            {"ranks",
             "ranks of that group, where no log says",
             {o.request.ranks, WholeNumbers{1, most_imported_ranks}}}};
}

Duration read_ms(const std::string& text, const std::string& option) {
    const Json value = parse_json(text, option);
    return read_duration_ms({&value, option, ""});
}

// The next command, or why no advice is given.
std::string log_verdict(const Json& scenario, const std::string& output) {
    std::vector<std::string> reasons;
    for (const char* stated : {"/caveats", "/cluster/link/caveats"}) {
        const Json::json_pointer pointer(stated);
        for (const Json& caveat :
             scenario.contains(pointer) ? scenario[pointer] : Json(Json::array())) {
            if (caveat.is_object() && caveat.value("withholds_advice", false)) {
                reasons.push_back(caveat["text"].get<std::string>());
            }
        }
    }
    return reasons.empty() ? fmt::format("Predict with it: bucketwise predict {}.", output)
                           : withheld_text(reasons);
}

// A pickle goes through Python; JSON is read directly.
CollectiveLog read_dump(ByteSource source, const std::string& file) {
    constexpr char pickle_begins = '\x80';
    Peeked dump = peeked(std::move(source), 1);
    if (!dump.begin.starts_with(pickle_begins)) {
        return read_flight_recorder(std::move(dump.all), file);
    }
    constexpr std::size_t longest = std::size_t{256} << 20;
    std::string pickle;
    std::string block(std::size_t{1} << 20, '\0');
    while (const std::size_t count = dump.all(block.data(), block.size())) {
        pickle.append(block, 0, count);
        if (pickle.size() > longest) {
            throw InputError(file, "", "a dump of at most 256 MiB", "a longer one");
        }
    }
    const ScriptRun read = run_script("import/flight_recorder/pickle_to_json.py", {}, pickle);
    if (read.failure) {
        throw InputError(file, "", "a dump that python3 can read, or the same as JSON",
                         *read.failure);
    }
    return read_flight_recorder(
        [left = std::string_view(read.output)](char* buffer, std::size_t size) mutable {
            const std::size_t count = left.copy(buffer, size);
            left.remove_prefix(count);
            return count;
        },
        file);
}

using LogReader = std::function<CollectiveLog(ByteSource source, const std::string& file)>;

int import_log_files(LogOptions& options, FileKind kind, const LogReader& read) {
    if (!options.model.empty()) {
        options.request.model = imported_model(options.model);
    }
    std::vector<CollectiveLog> logs;
    for (const std::string& file : options.files) {
        logs.push_back(reading({file}, kind,
                               [&] { return read(inflated(blocks_of_file(file), file), file); }));
    }
    LogImport imported = import_logs(logs, options.request);
    const Scenario scenario = connect(imported, options.link, read_text_file);
    state_caveats(scenario, imported);
    write_outputs(
        {{options.output, json_text(imported.scenario)}},
        fmt::format("{}\n\n{}\n{}{}", wrapped(log_verdict(imported.scenario, options.output)),
                    imported.scenario["name"].get<std::string>(), text_of(imported.findings),
                    replay_text(imported, scenario)));
    return exit_done;
}

}  // namespace

CommandHelp import_chakra_help() {
    const auto o = std::make_shared<LogOptions>();
    LogImportRequest& request = o->request;
    return {
        .usage = {"bucketwise import chakra TRACE... -o FILE --link LINK [OPTIONS]"},
        .options = options_of(
            log_rows(*o),
            {{"forward-ms",
              "time of forward and the optimizer, where no node says",
              {request.forward, read_ms}},
             {"backward-ms", "time of backward; both or neither", {request.backward, read_ms}}}),
        .text = chakra_text,
        .positional = {"traces", -1, o->files},
        .required = {"traces", "output"},
        .wants = "traces, and -o with a file to write",
        .run = [o](const CommandLine&) {
            if (o->request.forward.has_value() != o->request.backward.has_value()) {
                throw UsageError{
                    "import chakra: expected --forward-ms and --backward-ms, or neither, got "
                    "one"};
            }
            return import_log_files(*o, FileKind::execution_trace, read_chakra);
        }};
}

CommandHelp import_flight_recorder_help() {
    const auto o = std::make_shared<LogOptions>();
    return {.usage = {"bucketwise import flight-recorder DUMP... -o FILE [OPTIONS]"},
            .options = options_of(log_rows(*o),
                                  {{"same-host", "all ranks ran on one host and share its clock",
                                    o->request.same_host}}),
            .text = flight_recorder_text,
            .positional = {"dumps", -1, o->files},
            .required = {"dumps", "output"},
            .wants = "dumps, and -o with a file to write",
            .run = [o](const CommandLine&) {
                return import_log_files(*o, FileKind::flight_recorder, read_dump);
            }};
}

}  // namespace bucketwise
