// bucketwise import kineto|nsys TRACE...: a profiler's traces as a scenario that replays them.
#include "cli/import_traces.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/imported_model.h"
#include "cli/prediction.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "cli/shell/read_files.h"
#include "import/kineto/kineto_trace.h"
#include "import/nsys/export_database.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_comparison.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "import/source/byte_source.h"
#include "import/source/inflate.h"
#include "sim/base/transformed.h"
#include "sim/report/number_text.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

constexpr std::string_view kineto_text = R"(
examples:
  bucketwise import kineto rank0.json.gz -o scenario.json
  bucketwise import kineto rank0.json.gz rank1.json.gz --model resnet50 -o scenario.json
  bucketwise import kineto rank0.json.gz --undisturbed no_sync.json.gz -o scenario.json
  bucketwise import kineto before.json.gz --compare after.json.gz
  bucketwise predict scenario.json

A trace is a file of torch.profiler's export_chrome_trace() or tensorboard_trace_handler(), plain or compressed with
gzip, with some steps of DistributedDataParallel or fully_shard (FSDP2) on CPUs or GPUs. record_shapes=True adds the
most.
)";

constexpr std::string_view nsys_text = R"(
examples:
  bucketwise import nsys report.sqlite -o scenario.json
  bucketwise import nsys node0.sqlite node1.sqlite --model resnet50 -o scenario.json
  bucketwise import nsys report.sqlite --step-range "train_step" -o scenario.json
  bucketwise predict scenario.json

nsys makes the export of a report: nsys export --type sqlite --include-blobs=true report.nsys-rep. Each process in it
that uses a GPU is a rank. nsys profile -t cuda,nvtx --pytorch=autograd-shapes-nvtx records the most; without PyTorch's
ranges each all-reduce stands for one gradient.
)";

struct TraceOptions {
    std::vector<std::string> files;
    std::string output;
    std::string model;
    std::optional<std::string> link;
    std::string undisturbed;
    std::string compare;
    std::optional<std::int64_t> ranks;
    std::string trace;
    NsysRequest nsys;  // of nsys alone
};

// Reads the ranks of a run from files.
using TraceReader = std::function<std::vector<TracedRank>(const std::vector<std::string>& files)>;

void check_outputs(const TraceOptions& options, const std::string& words) {
    if (options.output.empty() && options.compare.empty()) {
        throw UsageError{
            fmt::format("{0}: expected -o with a file to write, or --compare with another trace; "
                        "see bucketwise {0} --help",
                        words)};
    }
    const auto refuse = [&](bool is_typed, const char* option) {
        if (options.output.empty() && is_typed) {
            throw UsageError{fmt::format("{}: --{} has no effect without -o", words, option)};
        }
    };
    refuse(!options.trace.empty(), "trace");
    refuse(options.link.has_value(), "link");
    refuse(!options.undisturbed.empty(), "undisturbed");
    check_one_printed(words, "--output and --trace", options.output, options.trace);
}

// Writes the common step of the ranks as a scenario, and prints findings and replay; or compares it
// with another run's. Outputs are checked before anything slow is read.
int import_traces(const TraceOptions& options, const std::string& words, FileKind kind,
                  const TraceReader& reader) {
    check_outputs(options, words);
    const TraceReader read = [&](const std::vector<std::string>& files) {
        return reading(files, kind, [&] { return reader(files); });
    };
    TraceImportRequest request{.ranks = options.ranks};
    if (!options.model.empty()) {
        request.model = imported_model(options.model);
    }
    if (!options.undisturbed.empty()) {
        request.undisturbed = plain_run(std::move(read({options.undisturbed}).front()));
    }
    TraceImport imported = import_trace(read(options.files), request);
    std::string text;
    if (!options.compare.empty()) {
        const TraceImport after =
            import_trace(read({options.compare}), {.model = request.model, .ranks = request.ranks});
        text = comparison_text(imported.summary, after.summary);
    }
    if (options.output.empty()) {
        write_outputs({}, text);
        return exit_done;
    }
    const Scenario scenario = connect(imported, options.link, read_text_file);
    const Replay replayed = replay(imported, scenario);
    state_caveats(replayed, imported);
    std::vector<OutputText> outputs{{options.output, json_text(imported.scenario)}};
    if (!options.trace.empty()) {
        const TraceProcess traced = traced_process(imported);
        outputs.push_back({options.trace,
                           step_trace_beside(scenario, simulated_input(scenario),
                                             scenario.sync.bucket_cap, scenario.sharding, traced)});
    }
    const TraceAdvice advice = advise(imported, scenario, replayed);
    text += fmt::format("{}{}\n\n{}\n\n{}{}{}", text.empty() ? "" : "\n",
                        wrapped(verdict_text(advice)), imported.scenario["name"].get<std::string>(),
                        text_of(advice), text_of(imported.findings), text_of(replayed));
    write_outputs(outputs, text);
    return exit_done;
}

CommandHelp trace_help(const std::string& command, std::string_view text, TraceOptions& o,
                       const std::vector<OptionText>& own) {
    const std::string usage = "bucketwise import " + command + " TRACE... ";
    return {
        .usage = {usage + "-o FILE [OPTIONS]", usage + "--compare TRACE [OPTIONS]"},
        .options = options_of(
            {{"output,o", "scenario file to write; - is standard output", o.output},
             {"model",
              "model whose gradients these are, to name them: a model that ships, a scenario "
              "file, or a config.json",
              o.model, scenarios()},
             {"link", "link file or preset instead of one fitted to the trace's all-reduces",
              o.link},
             {"undisturbed",
              "trace of the same steps without communication (no_sync, or one rank): how "
              "much all-reduces slow kernels",
              o.undisturbed},
             {"compare",
              "another trace, after a change: where the milliseconds went; without -o only that",
              o.compare},
             {"ranks",
              "ranks of the run, where no trace says",
              {o.ranks, WholeNumbers{1, most_imported_ranks}}},
             {"trace", "write the replayed step beside the traced one, for ui.perfetto.dev",
              o.trace}},
            own),
        .text = text,
        .positional = {"traces", -1, o.files},
        .required = {"traces"},
        .wants = "traces, and -o with a file to write"};
}

}  // namespace

// The reading thread counts; the asking thread shows.
TracedRank read_kineto_file(const std::string& file) {
    const std::uint64_t size = size_of_file(file);
    std::atomic<std::uint64_t> read = 0;
    const ByteSource counted = [&read, blocks = blocks_of_file(file)](char* buffer,
                                                                      std::size_t room) {
        const std::size_t count = blocks(buffer, room);
        read += count;
        return count;
    };
    // A writer to a pipe may never go on, and its reading thread could not be ended.
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

std::vector<TracedRank> read_nsys_file(const std::string& file, const NsysRequest& request) {
    ExportDatabase database = ExportDatabase::of_file(file);
    note_read(file);
    PercentLine line("reading " + file);
    database.report_to([&line](std::int64_t done, std::int64_t all) {
        line(all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0);
    });
    std::vector<TracedRank> ranks;
    for (const ProfilerTrace& trace : read_nsys_export(database, request)) {
        ranks.push_back(traced_rank(trace));
    }
    return ranks;
}

std::vector<TracedRank> read_trace_file(const std::string& file, FileKind kind) {
    return kind == FileKind::nsys_export ? read_nsys_file(file, {})
                                         : std::vector<TracedRank>{read_kineto_file(file)};
}

CommandHelp import_kineto_help() {
    const auto o = std::make_shared<TraceOptions>();
    CommandHelp help = trace_help("kineto", kineto_text, *o, {});
    help.run = [o](const CommandLine&) {
        return import_traces(*o, "import kineto", FileKind::profiler_trace,
                             [](const std::vector<std::string>& files) {
                                 return transformed(files, read_kineto_file);
                             });
    };
    return help;
}

CommandHelp import_nsys_help() {
    const auto o = std::make_shared<TraceOptions>();
    constexpr std::int64_t most_bytes = std::int64_t{1} << 40;
    CommandHelp help = trace_help(
        "nsys", nsys_text, *o,
        {{"step-range",
          "name of the NVTX ranges that mark steps, with any number in it, where several might",
          o->nsys.step_range},
         {"all-reduce-bytes",
          "sizes of a step's all-reduces as issued, separated by commas, where nothing says",
          {o->nsys.all_reduce_bytes, ListOf{WholeNumbers{1, most_bytes}}}}});
    help.run = [o](const CommandLine&) {
        return import_traces(
            *o, "import nsys", FileKind::nsys_export, [&](const std::vector<std::string>& files) {
                std::vector<TracedRank> ranks;
                for (const std::string& file : files) {
                    std::ranges::move(read_nsys_file(file, o->nsys), std::back_inserter(ranks));
                }
                return ranks;
            });
    };
    return help;
}

}  // namespace bucketwise
