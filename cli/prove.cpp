// bucketwise prove: measures and validates what a machine can show, and packs it.
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/ranks/backends.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/shipped_files.h"
#include "sim/text/system_reason.h"

namespace bucketwise {
namespace {

constexpr std::string_view prove_text = R"(
Measures computing, collectives and whole steps on two ranks, predicts the steps, and packs all of it
into FOLDER.tar.gz, to send on: every sample, links, reports with pictures, versions, and rows of the
scoreboard. With nccl each rank has a GPU; where there is one GPU only, they share it, and every file
says so. A part that fails does not end the others. No setting of the machine changes. Without SCENARIO
it is GPT-2 on GPUs and a tiny transformer on processors.

examples:
  bucketwise prove --backend nccl -o proof
  bucketwise prove scenarios/resnet_small.json -o proof --time 3min
)";

constexpr const char* script_name = "python/bucketwise/prove.py";

struct ProveRequest {
    std::string output;
    std::string scenario;  // empty: the backend's own
    BackendOptions backend;
    double time_s = 0;
};

// Becomes the script, so that what it prints is seen as it comes.
int run_prove(const ProveRequest& request) {
    if (request.output.empty() || request.output == "-") {
        throw UsageError{
            "prove: expected -o and a folder to write to; see bucketwise prove --help"};
    }
    const std::string script = shipped_file(script_name).value_or(script_name);
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const char* own = std::getenv("BUCKETWISE_PYTHON");  // NOLINT(concurrency-mt-unsafe)
    std::vector<std::string> command{"env",
                                     own != nullptr ? own : "python3",
                                     script,
                                     request.output,
                                     std::string(request.backend.backend->name()),
                                     fmt::format("{:g}", request.time_s),
                                     program};
    if (!request.scenario.empty()) {
        command.push_back(here_or_shipped(request.scenario));
    }
    std::vector<char*> arguments;
    for (std::string& word : command) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    ::execv("/usr/bin/env", arguments.data());
    throw std::runtime_error("python3 cannot be started: " + system_reason(errno));
}

}  // namespace

CommandHelp prove_help() {
    const auto o = std::make_shared<ProveRequest>();
    return {.usage = {"bucketwise prove [SCENARIO] -o FOLDER [OPTIONS]"},
            .options = options_of(
                {{"output,o",
                  "folder for all files, new or empty; FOLDER.tar.gz is written beside it",
                  {o->output}},
                 backend_rows(o->backend).front(),
                 {"time",
                  "how long all of it takes at most, such as 5min",
                  {o->time_s, TimeInSeconds{.least = 20, .most = 86400}, "8min"}}}),
            .text = prove_text,
            .arguments = scenarios(),
            .positional = {.value = o->scenario},
            .required = {"output"},
            .wants = "-o and a folder to write to",
            .run = [o](const CommandLine&) { return run_prove(*o); }};
}

}  // namespace bucketwise
