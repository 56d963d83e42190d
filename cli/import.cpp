// bucketwise import WHAT FILE...: what other tools have written, as files of this one.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/shell/command_help.h"

namespace bucketwise {
namespace {

constexpr std::array<CommandEntry, 3> importers{{
    {"hf", "a model of Hugging Face (its config.json), as a scenario", run_import_hf,
     import_hf_help},
    {"kineto", "a PyTorch profiler's trace, as a scenario that replays it", run_import_kineto,
     import_kineto_help},
    {"nccl-tests", "what all_reduce_perf printed, as measurements for calibrate",
     run_import_nccl_tests, import_nccl_tests_help},
}};

constexpr std::string_view import_text = R"(
  bucketwise import WHAT --help   its options and examples

examples:
  bucketwise import nccl-tests all_reduce.log -o measurements.jsonl
  bucketwise import hf config.json -o scenario.json
)";

}  // namespace

const CommandGroup& import_commands() {
    static const CommandGroup group{.name = "import",
                                    .wants = "what to import",
                                    .usage = "import WHAT FILE... -o FILE [OPTIONS]",
                                    .explanation = "Reads what other tools have written.",
                                    .text = import_text,
                                    .commands = importers};
    return group;
}

int run_import(const std::vector<std::string>& arguments) {
    return run_group(import_commands(), arguments);
}

}  // namespace bucketwise
