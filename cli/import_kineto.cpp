// bucketwise import kineto TRACE...: a PyTorch profiler's trace as a scenario that replays it.
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/progress.h"
#include "cli/trace_command.h"
#include "import/kineto/kineto_trace.h"
#include "import/source/inflate.h"
#include "import/source/read_ahead.h"

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
with gzip, of some steps of DistributedDataParallel on CPUs or GPUs. With record_shapes=True it tells the most.
)";

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
    return trace_help("kineto", import_kineto_examples);
}

int run_import_kineto(const CommandLine& line) {
    return import_traces(line, "kineto", FileKind::profiler_trace, read_traces);
}

}  // namespace bucketwise
