// bucketwise import kineto TRACE...: a PyTorch profiler's trace as a scenario that replays it.
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/trace_command.h"
#include "cli/trace_files.h"

namespace bucketwise {
namespace {

constexpr std::string_view import_kineto_examples = R"(
examples:
  bucketwise import kineto rank0.json.gz -o scenario.json
  bucketwise import kineto rank0.json.gz rank1.json.gz --model resnet50 -o scenario.json
  bucketwise import kineto rank0.json.gz --undisturbed no_sync.json.gz -o scenario.json
  bucketwise import kineto before.json.gz --compare after.json.gz
  bucketwise predict scenario.json

A trace is what torch.profiler writes with export_chrome_trace() or tensorboard_trace_handler(), as it is or compressed
with gzip, of some steps of DistributedDataParallel or fully_shard (FSDP2) on CPUs or GPUs. With record_shapes=True it
tells the most.
)";

std::vector<TracedRank> read_traces(const std::vector<std::string>& files) {
    std::vector<TracedRank> ranks;
    ranks.reserve(files.size());
    for (const std::string& file : files) {
        ranks.push_back(read_kineto_file(file));
    }
    return ranks;
}

}  // namespace

CommandHelp import_kineto_help() {
    return trace_help("kineto", import_kineto_examples);
}

int run_import_kineto(const CommandLine& line) {
    return import_traces(line, "kineto", FileKind::profiler_trace, read_traces);
}

}  // namespace bucketwise
