// bucketwise import nsys EXPORT...: an export of Nsight Systems as a scenario that replays it.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/option_values.h"
#include "cli/trace_command.h"
#include "cli/trace_files.h"
#include "import/nsys/nsys_trace.h"

namespace bucketwise {
namespace {

constexpr std::string_view import_nsys_examples = R"(
examples:
  bucketwise import nsys report.sqlite -o scenario.json
  bucketwise import nsys node0.sqlite node1.sqlite --model resnet50 -o scenario.json
  bucketwise import nsys report.sqlite --step-range "train_step" -o scenario.json
  bucketwise predict scenario.json

An export is what nsys writes of a report: nsys export --type sqlite --include-blobs=true report.nsys-rep. Each process
in it that uses a GPU is a rank. Recorded with nsys profile -t cuda,nvtx --pytorch=autograd-shapes-nvtx it tells the
most; without PyTorch's ranges each all-reduce stands for one gradient.
)";

std::vector<TracedRank> read_exports(const std::vector<std::string>& files,
                                     const NsysRequest& request) {
    std::vector<TracedRank> ranks;
    for (const std::string& file : files) {
        std::ranges::move(read_nsys_file(file, request), std::back_inserter(ranks));
    }
    return ranks;
}

}  // namespace

CommandHelp import_nsys_help() {
    return trace_help("nsys", import_nsys_examples,
                      {{"step-range",
                        "the name of the NVTX ranges that mark steps, with any number in it, where "
                        "several might"},
                       {"all-reduce-bytes",
                        "of each all-reduce of a step, as issued and separated by commas, where "
                        "nothing tells"}});
}

int run_import_nsys(const CommandLine& line) {
    NsysRequest what{.step_range = text_or_empty(line.values, "step-range")};
    if (line.values.count("all-reduce-bytes") != 0) {
        constexpr std::int64_t most = std::int64_t{1} << 40;
        what.all_reduce_bytes = whole_numbers(line.values, "all-reduce-bytes", {1, most});
    }
    return import_traces(
        line, "nsys", FileKind::nsys_export,
        [&](const std::vector<std::string>& files) { return read_exports(files, what); });
}

}  // namespace bucketwise
