#include <array>
#include <exception>
#include <string_view>

#include <fmt/format.h>
#include <boost/program_options/errors.hpp>

#include "bench/benches.h"
#include "cli/commands.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/read_files.h"
#include "cli/shell/version.h"
#include "hw/launch/launcher_report.h"
#include "hw/nccl/nccl_backend.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// --- commands of two words ---

constexpr std::array<CommandEntry, 2> device_entries{{
    {"list", "the presets", device_list_help},
    {"show", "how a data sheet becomes times where nothing was measured", device_show_help},
}};
constexpr CommandGroup device_group{.name = "device",
                                    .wants = "list or show",
                                    .usage = "device list|show [ARGUMENTS]",
                                    .explanation = "The time that a GPU needs for a step.",
                                    .text = R"(
examples:
  bucketwise device list
  bucketwise device show A100

DEVICE is a preset: a name that a scenario's workload may have for its device.
)",
                                    .commands = device_entries};

constexpr std::array<CommandEntry, 2> link_entries{{
    {"list", "the presets", link_list_help},
    {"show", "the time of collectives on a link or a topology, by size", link_show_help},
}};
constexpr CommandGroup link_group{.name = "link",
                                  .wants = "list or show",
                                  .usage = "link list|show [ARGUMENTS]",
                                  .explanation = "The time of collectives on a link.",
                                  .text = R"(
examples:
  bucketwise link list
  bucketwise link show ib-ndr-400 --ranks 64

LINK is a preset, a link file, or a scenario with its link and ranks.
)",
                                  .commands = link_entries};

constexpr std::array<CommandEntry, 1> settings_entries{{
    {"check", "the buckets that a typed bucket size gives, and their cost", settings_check_help},
}};
constexpr CommandGroup settings_group{.name = "settings",
                                      .wants = "check",
                                      .usage = "settings check FILE [SCENARIO]",
                                      .explanation = "Bucket sizes in files of frameworks.",
                                      .text = R"(
examples:
  bucketwise settings check ds_config.json scenarios/gpt2_xl_32xh100.json
)",
                                      .commands = settings_entries};

constexpr std::array<CommandEntry, 6> import_entries{{
    {"chakra", "a Chakra or PyTorch execution trace: a scenario of its buckets",
     import_chakra_help},
    {"flight-recorder", "dumps of PyTorch's flight recorder: a scenario of their buckets",
     import_flight_recorder_help},
    {"hf", "a model of Hugging Face (its config.json): a scenario", import_hf_help},
    {"kineto", "traces of PyTorch's profiler: a scenario that replays them", import_kineto_help},
    {"nccl-tests", "logs of nccl-tests: measurements for calibrate", import_nccl_tests_help},
    {"nsys", "exports of Nsight Systems: a scenario that replays their steps", import_nsys_help},
}};
constexpr CommandGroup import_group{.name = "import",
                                    .wants = "what to import",
                                    .usage = "import WHAT FILE... -o FILE [OPTIONS]",
                                    .explanation = "Reads files of other tools.",
                                    .text = R"(
examples:
  bucketwise import nccl-tests all_reduce.log -o measurements.jsonl
  bucketwise import hf config.json -o scenario.json
)",
                                    .commands = import_entries};

// --- all of them ---

constexpr std::array<CommandEntry, 16> commands{{
    {"predict", "the best bucket cap and the step time of a scenario, simulated", predict_help},
    {"sweep", "the step at every combination of values of a scenario's keys", sweep_help},
    {"measure", "the same scenario on real ranks, every sample kept", measure_help},
    {"calibrate", "link and computing times from measurements", calibrate_help},
    {"compare", "predicted beside measured, and why they differ", compare_help},
    {"validate", "measure, calibrate, predict, compare and plot, into one folder", validate_help},
    {"prove", "everything that this machine can show, measured and packed", prove_help},
    {"check", "a gate for CI: are steps as fast as before, and why not", check_help},
    {"diagnose", "a traced step: what it should take, and where the rest went", diagnose_help},
    {"device", "the time that a GPU needs, from its data sheet; the presets", nullptr,
     &device_group},
    {"link", "the time of collectives on a link, by size; the presets", nullptr, &link_group},
    {"settings", "the buckets that a typed bucket size gives", nullptr, &settings_group},
    {"import", "files of other tools", nullptr, &import_group},
    {"bench", "tables of measurements on real ranks; most simulate too", nullptr, &bench_group},
    {"completion", "completion of arguments in bash or zsh", completion_help},
    {"man", "the manual page", man_help},
}};

constexpr std::string_view program_text =
    R"(  bucketwise --version        versions, for a bug report

examples:
  bucketwise predict resnet50 --ranks 8 --link nvlink-h100-8
  bucketwise predict scenarios/resnet50_8xh100.json
  bucketwise predict scenarios/resnet50_8xh100.json --link ib-ndr-400 --set /cluster/ranks=64
  bucketwise validate scenarios/transformer_small.json -o validation
)";

std::string version() {
    const Environment environment = read_environment();
    const std::string nccl = nccl_file();
    return fmt::format("bucketwise {}\n{}\n{}{}\n{}, {} cores\n{}\n", program_version(),
                       environment.compiler, gpu_libraries(),
                       nccl.empty() ? "" : fmt::format(" ({})", nccl), environment.cpu,
                       environment.cores, environment.kernel);
}

int dispatch(const std::vector<std::string>& arguments) {
    if (!arguments.empty() && arguments.front() == "--version") {
        write_output("-", version());
        return exit_done;
    }
    if (!arguments.empty() && arguments.front() == "complete") {
        for (const std::string& word :
             candidates(all_commands, {arguments.begin() + 1, arguments.end()})) {
            write_output("-", word + "\n");
        }
        return exit_done;
    }
    return run_group(all_commands, arguments);
}

// A rank that fails early tells its launcher, which prints one line for all ranks.
int end_with(const std::string& message, int exit_code) {
    const LauncherReport launcher;
    if (launcher.has_launcher()) {
        launcher.failure(message, false);
    } else {
        complain(message);
    }
    return exit_code;
}

}  // namespace

const CommandGroup all_commands{
    .name = "",
    .wants = "a command",
    .usage = "COMMAND [ARGUMENTS]",
    .explanation =
        "Predicts the best gradient-bucket size and the step time of data-parallel training.",
    .text = program_text,
    .commands = commands};

int run_command_line(const std::vector<std::string>& arguments) {
    try {
        forget_reads();
        return dispatch(arguments);
    } catch (const InputError& error) {
        return end_with(error.what(), exit_bad_input);
    } catch (const UsageError& error) {
        return end_with(error.message, exit_bad_input);
    } catch (const boost::program_options::error& error) {
        return end_with(error.what(), exit_bad_input);
    } catch (const std::bad_alloc&) {
        return end_with("out of memory", exit_failed);
    } catch (const std::exception& error) {
        return end_with(error.what(), exit_failed);
    }
}

}  // namespace bucketwise
