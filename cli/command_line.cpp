#include "cli/command_line.h"

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include <fmt/format.h>
#include <boost/program_options/errors.hpp>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/version.h"
#include "hw/nccl/nccl_backend.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr std::array<CommandEntry, 11> commands{{
    {"predict", "the best bucket cap and the step time of a scenario, simulated", run_predict,
     predict_help},
    {"sweep", "what if: the step at every combination of values of a scenario's keys", run_sweep,
     sweep_help},
    {"measure", "the same scenario on real ranks, every sample kept", run_measure, measure_help},
    {"calibrate", "link and computing times from measurements", run_calibrate, calibrate_help},
    {"compare", "predicted beside measured, and why they differ", run_compare, compare_help},
    {"validate", "measure, calibrate, predict, compare and plot, into one folder", run_validate,
     validate_help},
    {"link", "what collectives cost on a link, by size; the presets that come along", run_link,
     nullptr, link_commands},
    {"import", "what other tools have written, as files of this one", run_import, nullptr,
     import_commands},
    {"bench", "tables of measurements on real ranks; most simulate too", run_bench, nullptr,
     bench_commands},
    {"completion", "what completes this program's arguments in bash, zsh or fish", run_completion,
     completion_help},
    {"man", "the manual page", run_man, man_help},
}};

constexpr std::string_view program_text = R"(
  bucketwise COMMAND --help   its options and examples
  bucketwise --version        versions, for a bug report

examples:
  bucketwise predict scenarios/resnet50_8xh100.json
  bucketwise predict scenarios/resnet50_8xh100.json --link ib-ndr-400 --set /cluster/ranks=64
  bucketwise validate scenarios/transformer_small.json -o validation
)";

std::string version() {
    const Environment environment = read_environment();
    return fmt::format("bucketwise {}\n{}\n{}\n{}, {} cores\n{}\n", program_version(),
                       environment.compiler, gpu_libraries(), environment.cpu, environment.cores,
                       environment.kernel);
}

int dispatch(const std::vector<std::string>& arguments) {
    if (!arguments.empty() && arguments.front() == "--version") {
        fmt::print("{}", version());
        return exit_done;
    }
    return run_group(all_commands(), arguments);
}

int complain(const std::string& message, int exit_code) {
    // Not fmt::print, which throws when nobody reads what it writes.
    std::fputs(("bucketwise: " + message + "\n").c_str(), stderr);
    return exit_code;
}

}  // namespace

const CommandGroup& all_commands() {
    static const CommandGroup group{
        .name = "",
        .wants = "a command",
        .usage = "COMMAND [ARGUMENTS]",
        .explanation =
            "Predicts the best gradient-bucket size and the step time of data-parallel "
            "training.",
        .text = program_text,
        .commands = commands};
    return group;
}

int run_command_line(const std::vector<std::string>& arguments) {
    try {
        return dispatch(arguments);
    } catch (const InputError& error) {
        return complain(error.what(), exit_bad_input);
    } catch (const UsageError& error) {
        return complain(error.message, exit_bad_input);
    } catch (const boost::program_options::error& error) {
        return complain(error.what(), exit_bad_input);
    } catch (const std::bad_alloc&) {
        return complain("out of memory", exit_failed);
    } catch (const std::exception& error) {
        return complain(error.what(), exit_failed);
    }
}

}  // namespace bucketwise
