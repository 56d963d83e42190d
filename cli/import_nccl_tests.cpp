// bucketwise import nccl-tests LOG...: output of all_reduce_perf, all_gather_perf and
// reduce_scatter_perf as measurements.
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/ranks/measurement_file.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/version.h"
#include "hw/record/environment.h"
#include "import/nccl_tests/nccl_tests.h"
#include "import/nccl_tests/nccl_tests_log.h"
#include "sim/report/number_text.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

constexpr std::string_view import_nccl_tests_examples = R"(
examples:
  bucketwise import nccl-tests all_reduce.log -o measurements.jsonl
  bucketwise import nccl-tests all_reduce.json -o measurements.jsonl
  bucketwise import nccl-tests one_node.log two_nodes.log --ranks 8,16 --ranks-per-node 8 -o measurements.jsonl
  bucketwise import nccl-tests all_reduce.log all_gather.log reduce_scatter.log -o measurements.jsonl
  bucketwise calibrate measurements.jsonl -o link.json

A log is the text of nccl-tests or rccl-tests, with or without a launcher's prefixes, or the JSON of -J. Rows of
all_reduce_perf are taken, and those of reduce_scatter_perf and all_gather_perf where the log names them: sums of one
element type, and all-gathers of one. Other rows are counted.
)";

struct NcclTestsCommand {
    std::vector<std::string> files;
    std::string output;
    NcclTestsOptions wanted;
};

std::string lines_of(const ImportedNcclTests& imported) {
    std::string text = line_of(imported.environment);
    for (const CollectiveRecord& record : imported.collectives) {
        text += line_of(record);
    }
    return text;
}

// The next command. A link needs several sizes, to tell latency from bandwidth.
std::string advice_on_logs(const ImportedNcclTests& imported, const std::string& output) {
    std::map<CollectiveKind, std::vector<const CollectiveRecord*>> by_kind;
    for (const CollectiveRecord& record : imported.collectives) {
        by_kind[record.kind].push_back(&record);
    }
    constexpr std::size_t few = 6;
    std::vector<std::string> taken;
    bool too_few = false;
    for (const auto& [kind, records] : by_kind) {
        std::set<Bytes> sizes;
        std::set<std::int64_t> ranks;
        for (const CollectiveRecord* record : records) {
            sizes.insert(record->size);
            ranks.insert(record->transport.ranks);
        }
        taken.push_back(fmt::format("{} of {} ranks, {}",
                                    counted(std::ssize(records), std::string(name_of(kind))),
                                    fmt::join(ranks, " and "), counted(std::ssize(sizes), "size")));
        too_few = too_few || sizes.size() < few;
    }
    std::string text = fmt::format("{}", fmt::join(taken, "; "));
    if (too_few) {
        text.append(fmt::format(": too few for a link to rely on; run {} with -b 8 -e 1G -f 2",
                                by_kind.size() == 1 && by_kind.contains(CollectiveKind::all_reduce)
                                    ? "all_reduce_perf"
                                    : "each program"));
    } else {
        text.append(": make a link of them with bucketwise calibrate ")
            .append(output == "-" ? "FILE" : output)
            .append(" -o link.json");
    }
    return text + "\n\n";
}

int run_import_nccl_tests(const CommandLine& line, const NcclTestsCommand& options) {
    const std::size_t ranks = options.wanted.ranks.size();
    if (ranks > 1 && ranks != options.files.size()) {
        throw UsageError{
            fmt::format("import nccl-tests: expected --ranks of all logs or of each, got {} for "
                        "{} logs",
                        ranks, options.files.size())};
    }
    std::vector<NcclTestsLog> logs;
    for (const std::string& file : options.files) {
        logs.push_back(reading({file}, FileKind::nccl_tests_log,
                               [&] { return read_nccl_tests_log(blocks_of_file(file), file); }));
    }
    ImportedNcclTests imported = reading(options.files, FileKind::nccl_tests_log, [&] {
        return import_nccl_tests(std::move(logs), options.wanted);
    });
    EnvironmentRecord& environment = imported.environment;
    environment.version = program_version();
    std::vector<std::string> command{"bucketwise", "import", "nccl-tests"};
    command.insert(command.end(), line.arguments.begin(), line.arguments.end());
    environment.command = passed_on_command(command);
    if (environment.date.empty()) {
        environment.date = utc_now();
        imported.report += "Note: no log has a date; the file's is today's.\n";
    }
    write_outputs({{options.output, lines_of(imported)}},
                  advice_on_logs(imported, options.output) + imported.report);
    return exit_done;
}

}  // namespace

CommandHelp import_nccl_tests_help() {
    const auto o = std::make_shared<NcclTestsCommand>();
    return {
        .usage = {"bucketwise import nccl-tests LOG... -o FILE [OPTIONS]"},
        .options = options_of(
            {{"output,o", "measurement file to write; - is standard output", o->output},
             {"ranks",
              "ranks of all logs, or of each log between commas, where they do not say",
              {o->wanted.ranks, ListOf{WholeNumbers{2, most_imported_ranks}}}},
             {"ranks-per-node",
              "ranks per node, where the logs name no hosts",
              {o->wanted.ranks_per_node, WholeNumbers{1, most_imported_ranks}}},
             {"dtype",
              "float32, float16, bfloat16 or float64: the one to take; default: float32, or the "
              "only one",
              {o->wanted.dtype, Choice{every<DType>}}}}),
        .text = import_nccl_tests_examples,
        .positional = {"log", -1, o->files},
        .required = {"log", "output"},
        .wants = "logs, and -o with a file to write",
        .run = [o](const CommandLine& line) { return run_import_nccl_tests(line, *o); }};
}

}  // namespace bucketwise
