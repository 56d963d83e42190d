// bucketwise import WHAT FILE...: what other tools have written, as files of this one.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/command.h"

namespace bucketwise {
namespace {

struct Importer {
    std::string_view name;
    std::string_view summary;
    int (*run)(const std::vector<std::string>&);
};

constexpr std::array<Importer, 3> importers{{
    {"hf", "a model of Hugging Face (its config.json), as a scenario", run_import_hf},
    {"kineto", "a PyTorch profiler's trace, as a scenario that replays it", run_import_kineto},
    {"nccl-tests", "what all_reduce_perf printed, as measurements for calibrate",
     run_import_nccl_tests},
}};

std::string usage() {
    std::string text =
        "usage: bucketwise import WHAT FILE... -o FILE [OPTIONS]\n\nReads what other tools have "
        "written.\n\nwhat:\n";
    for (const Importer& importer : importers) {
        text += fmt::format("  {:<11} {}\n", importer.name, importer.summary);
    }
    return text + "\n  bucketwise import WHAT --help   its options and examples\n";
}

}  // namespace

int run_import(const std::vector<std::string>& arguments) {
    if (arguments.empty()) {
        throw UsageError{
            "import: expected what to import, got nothing; see bucketwise import --help"};
    }
    const std::string& name = arguments.front();
    if (name == "--help" || name == "-h" || name == "help") {
        fmt::print("{}", usage());
        return exit_done;
    }
    for (const Importer& importer : importers) {
        if (importer.name == name) {
            return importer.run({arguments.begin() + 1, arguments.end()});
        }
    }
    throw UsageError{fmt::format(
        "import: expected what to import, got \"{}\"; see bucketwise import --help", name)};
}

}  // namespace bucketwise
