// bucketwise import nccl-tests LOG...: what all_reduce_perf, all_gather_perf and
// reduce_scatter_perf printed, as measurements.
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/ranks/measurement_file.h"
#include "cli/shell/command_help.h"
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

namespace po = boost::program_options;

constexpr std::string_view import_nccl_tests_examples = R"(
examples:
  bucketwise import nccl-tests all_reduce.log -o measurements.jsonl
  bucketwise import nccl-tests all_reduce.json -o measurements.jsonl
  bucketwise import nccl-tests one_node.log two_nodes.log --ranks 8,16 --ranks-per-node 8 -o measurements.jsonl
  bucketwise import nccl-tests all_reduce.log all_gather.log reduce_scatter.log -o measurements.jsonl
  bucketwise calibrate measurements.jsonl -o link.json

A log is text as it stands, of nccl-tests or rccl-tests, whatever a launcher put before its lines, or the JSON of -J.
Taken are all_reduce_perf, reduce_scatter_perf and all_gather_perf, these two where the log names them; sums of one
element type, and all-gathers of one. What is not taken is counted.
)";

NcclTestsOptions requested(const po::variables_map& values, std::size_t logs) {
    NcclTestsOptions options;
    if (values.count("ranks") != 0) {
        options.ranks = whole_numbers(values, "ranks", {2, most_imported_ranks});
        if (options.ranks.size() != 1 && options.ranks.size() != logs) {
            throw UsageError{fmt::format(
                "import nccl-tests: expected --ranks of all logs or of each, got {} for "
                "{} logs",
                options.ranks.size(), logs)};
        }
    }
    options.ranks_per_node = optional_number(values, "ranks-per-node", {1, most_imported_ranks});
    if (values.count("dtype") != 0) {
        options.dtype = choice_value(values, "dtype", every<DType>);
    }
    return options;
}

std::string lines_of(const ImportedNcclTests& imported) {
    std::string text = line_of(imported.environment);
    for (const AllReduceRecord& record : imported.all_reduces) {
        text += line_of(record);
    }
    for (const CollectiveRecord& record : imported.collectives) {
        text += line_of(record);
    }
    return text;
}

// What to do with it, first. A link needs several sizes: latency and bandwidth are told apart by
// them.
std::string advice_on_logs(const ImportedNcclTests& imported, const std::string& output) {
    std::map<CollectiveKind, std::vector<const AllReduceRecord*>> by_kind;
    for (const AllReduceRecord& record : imported.all_reduces) {
        by_kind[CollectiveKind::all_reduce].push_back(&record);
    }
    for (const CollectiveRecord& record : imported.collectives) {
        by_kind[record.kind].push_back(&record.measured);
    }
    constexpr std::size_t few = 6;
    std::vector<std::string> taken;
    bool too_few = false;
    for (const auto& [kind, records] : by_kind) {
        std::set<Bytes> sizes;
        std::set<std::int64_t> ranks;
        for (const AllReduceRecord* record : records) {
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
                                by_kind.size() == 1 && !imported.all_reduces.empty()
                                    ? "all_reduce_perf"
                                    : "each program"));
    } else {
        text.append(": make a link of them with bucketwise calibrate ")
            .append(output == "-" ? "FILE" : output)
            .append(" -o link.json");
    }
    return text + "\n\n";
}

}  // namespace

CommandHelp import_nccl_tests_help() {
    return {
        .usage = {"bucketwise import nccl-tests LOG... -o FILE [OPTIONS]"},
        .options = options_of(
            {{"output,o", "measurement file to write, - for standard output"},
             {"ranks", "of all logs, or of each one separated by commas, where they do not tell"},
             {"ranks-per-node", "where the logs name no hosts"},
             {"dtype",
              "float32, float16, bfloat16 or float64: which to take of several; float32 where "
              "there is any unless given"}}),
        .text = import_nccl_tests_examples,
        .positional = {"log", -1},
        .required = {"log", "output"},
        .wants = "logs, and -o with a file to write"};
}

int run_import_nccl_tests(const CommandLine& line) {
    const po::variables_map& values = line.values;
    const std::vector<std::string> files = texts_value(values, "log");
    const NcclTestsOptions wanted = requested(values, files.size());
    std::vector<NcclTestsLog> logs;
    for (const std::string& file : files) {
        logs.push_back(reading({file}, FileKind::nccl_tests_log,
                               [&] { return read_nccl_tests_log(blocks_of_file(file), file); }));
    }
    ImportedNcclTests imported = reading(files, FileKind::nccl_tests_log, [&] {
        return import_nccl_tests(std::move(logs), wanted);
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
    write_outputs({{text_value(values, "output"), lines_of(imported)}},
                  advice_on_logs(imported, text_value(values, "output")) + imported.report);
    return exit_done;
}

}  // namespace bucketwise
