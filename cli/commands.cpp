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
    {"list", "the presets that come along", run_device_list, device_list_help},
    {"show", "how one's data sheet becomes times where nothing was measured", run_device_show,
     device_show_help},
}};

constexpr std::string_view device_text = R"(
  bucketwise device WHAT --help   its options and examples

examples:
  bucketwise device list
  bucketwise device show A100

DEVICE is a preset, a name that a scenario's workload may have for its device.
)";

constexpr CommandGroup device_group{.name = "device",
                                    .wants = "list or show",
                                    .usage = "device list|show [ARGUMENTS]",
                                    .explanation = "What a GPU needs for a step.",
                                    .text = device_text,
                                    .commands = device_entries};

constexpr std::array<CommandEntry, 2> link_entries{{
    {"list", "the presets that come along", run_link_list, link_list_help},
    {"show", "what collectives cost on a link or a topology, by size", run_link_show,
     link_show_help},
}};

constexpr std::string_view link_text = R"(
  bucketwise link WHAT --help   its options and examples

examples:
  bucketwise link list
  bucketwise link show ib-ndr-400 --ranks 64

LINK is a preset, a link file, or a scenario whose link and ranks are taken.
)";

constexpr CommandGroup link_group{.name = "link",
                                  .wants = "list or show",
                                  .usage = "link list|show [ARGUMENTS]",
                                  .explanation = "What collectives cost on a link.",
                                  .text = link_text,
                                  .commands = link_entries};

constexpr std::array<CommandEntry, 1> settings_entries{{
    {"check", "what buckets a typed bucket size really gives, and what they cost",
     run_settings_check, settings_check_help},
}};

constexpr std::string_view settings_group_text = R"(
  bucketwise settings check --help   its options and examples

examples:
  bucketwise settings check ds_config.json scenarios/gpt2_xl_32xh100.json
)";

constexpr CommandGroup settings_group{.name = "settings",
                                      .wants = "check",
                                      .usage = "settings check FILE [SCENARIO]",
                                      .explanation = "What somebody has typed.",
                                      .text = settings_group_text,
                                      .commands = settings_entries};

constexpr std::array<CommandEntry, 6> import_entries{{
    {"chakra", "a Chakra or PyTorch execution trace, as a scenario of its buckets",
     run_import_chakra, import_chakra_help},
    {"flight-recorder", "dumps of PyTorch's flight recorder, as a scenario of their buckets",
     run_import_flight_recorder, import_flight_recorder_help},
    {"hf", "a model of Hugging Face (its config.json), as a scenario", run_import_hf,
     import_hf_help},
    {"kineto", "a PyTorch profiler's trace, as a scenario that replays it", run_import_kineto,
     import_kineto_help},
    {"nccl-tests", "what all_reduce_perf printed, as measurements for calibrate",
     run_import_nccl_tests, import_nccl_tests_help},
    {"nsys", "an export of Nsight Systems, as a scenario that replays its steps", run_import_nsys,
     import_nsys_help},
}};

constexpr std::string_view import_text = R"(
  bucketwise import WHAT --help   its options and examples

examples:
  bucketwise import nccl-tests all_reduce.log -o measurements.jsonl
  bucketwise import hf config.json -o scenario.json
)";

constexpr CommandGroup import_group{.name = "import",
                                    .wants = "what to import",
                                    .usage = "import WHAT FILE... -o FILE [OPTIONS]",
                                    .explanation = "Reads what other tools have written.",
                                    .text = import_text,
                                    .commands = import_entries};

constexpr std::array<CommandEntry, 8> bench_entries{{
    {"allreduce", "time, memory and exactness of all-reduces, by algorithm, size and ranks",
     run_bench_allreduce, bench_allreduce_help},
    {"allgather", "the same of all-gathers", run_bench_allgather, bench_allgather_help},
    {"reducescatter", "the same of reduce-scatters", run_bench_reducescatter,
     bench_reducescatter_help},
    {"bucketed", "bucket sizes by sequence lengths and batch sizes (CS336)", run_bench_bucketed,
     bench_bucketed_help},
    {"compare-ddp", "DistributedDataParallel beside Python reductions (PyTorch's ddp/compare)",
     run_bench_compare_ddp, bench_compare_ddp_help},
    {"ddp-strategies", "naive, flat and overlapped synchronisation (CS336)",
     run_bench_ddp_strategies, bench_ddp_strategies_help},
    {"syncbn", "a BatchNorm layer synchronised over ranks, by implementation, batch and width",
     run_bench_syncbn, bench_syncbn_help},
    {"training", "a data-parallel training run, simulated and real", run_bench_training,
     bench_training_help},
}};

constexpr std::string_view bench_text = R"(
  bucketwise bench WHAT --help   its options and examples

examples:
  bucketwise bench allreduce
  bucketwise bench ddp-strategies scenarios/cs336_ddp.json --simulate
)";

constexpr CommandGroup bench_group{.name = "bench",
                                   .wants = "what to measure",
                                   .usage = "bench WHAT [OPTIONS]",
                                   .explanation = "Measures on real ranks; most simulate too.",
                                   .text = bench_text,
                                   .commands = bench_entries};

// --- all of them ---

constexpr std::array<CommandEntry, 14> commands{{
    {"predict", "the best bucket cap and the step time of a scenario, simulated", run_predict,
     predict_help},
    {"sweep", "what if: the step at every combination of values of a scenario's keys", run_sweep,
     sweep_help},
    {"measure", "the same scenario on real ranks, every sample kept", run_measure, measure_help},
    {"calibrate", "link and computing times from measurements", run_calibrate, calibrate_help},
    {"compare", "predicted beside measured, and why they differ", run_compare, compare_help},
    {"validate", "measure, calibrate, predict, compare and plot, into one folder", run_validate,
     validate_help},
    {"check", "a gate for CI: whether steps are as fast as they were, and why not", run_check,
     check_help},
    {"device", "what a GPU needs where nobody measured it; the presets that come along", nullptr,
     nullptr, &device_group},
    {"link", "what collectives cost on a link, by size; the presets that come along", nullptr,
     nullptr, &link_group},
    {"settings", "what a bucket size that is typed somewhere really gives", nullptr, nullptr,
     &settings_group},
    {"import", "what other tools have written, as files of this one", nullptr, nullptr,
     &import_group},
    {"bench", "tables of measurements on real ranks; most simulate too", nullptr, nullptr,
     &bench_group},
    {"completion", "what completes this program's arguments in bash, zsh or fish", run_completion,
     completion_help},
    {"man", "the manual page", run_man, man_help},
}};

constexpr std::string_view program_text = R"(
  bucketwise COMMAND --help   its options and examples
  bucketwise --version        versions, for a bug report

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
    return run_group(all_commands, arguments);
}

// A rank that fails before it is one tells its launcher, who has one line for all of them.
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
