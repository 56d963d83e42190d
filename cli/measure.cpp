// bucketwise measure SCENARIO: runs the scenario on real ranks and writes down every sample.
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/deciding_rounds.h"
#include "cli/measure.h"
#include "cli/ranks/measurement_file.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "hw/launch/launcher.h"

namespace bucketwise {
namespace {

constexpr std::string_view measure_text = R"(
examples:
  bucketwise measure scenarios/two_buckets.json -o measurements.jsonl
  bucketwise measure scenarios/transformer_small.json --ranks 2 --link-rate 1gbit -o measurements.jsonl
  bucketwise measure scenarios/transformer_small.json --ranks 2 --rounds 30 --resume -o measurements.jsonl
  torchrun --no-python --nproc-per-node 2 bucketwise measure scenarios/two_buckets.json -o measurements.jsonl

With --backend nccl every rank needs a GPU of this machine for itself, or --share-gpu.

Ranks are processes of this machine, on its loopback interface. A process that torchrun, mpirun or srun started is one
rank: it meets the others through --store and listens on --interface.
)";

// Throws where nothing can be measured into the output, or continued.
void check_output(const MeasureOptions& options) {
    check_measurement_output(options.output, options.resume);
    if (options.resume && !is_unbegun(options.output)) {
        check_same_run(options, read_measurements(options.output).records);
    }
}

std::string failure_text(const LaunchFailure& failure, const MeasurementFile& output,
                         const std::string& asked_for) {
    const std::optional<std::string> keeper = output.keeper();
    return text_of(failure) + (keeper ? fmt::format("; {} keeps what was measured", *keeper) : "") +
           (keeper == asked_for ? ", --resume goes on" : "");
}

// The interruption, where the user ended the run, records exist, and that is no failure; else
// empty.
std::string run_launcher(const MeasureOptions& options, Interruption interruption) {
    check_output(options);
    MeasurementFile output(options.output);
    output.hand_over();
    std::optional<LaunchFailure> failure;
    {
        MeasureProgress line;
        failure = launch_job(options.job, {}, line);
    }
    output.take_back();
    if (failure && failure->interrupted && interruption == Interruption::ends_well &&
        output.keeper() == options.output) {
        return failure->reason;
    }
    if (failure) {
        throw std::runtime_error(failure_text(*failure, output, options.output));
    }
    output.check_in_place();
    return {};
}

}  // namespace

MeasureOutcome measure(const MeasureOptions& options, const std::optional<RankIdentity>& identity,
                       Interruption interruption) {
    if (!identity) {
        std::string interrupted = run_launcher(options, interruption);
        return {.file = options.output, .interrupted = std::move(interrupted)};
    }
    // Where somebody else started the ranks, the first of them has the file.
    const bool has_file = identity->rank == 0 && !is_own_rank(identity);
    if (has_file) {
        check_output(options);
        const MeasurementFile can_be_written(options.output);
    }
    const int exit_code = run_measure_rank(options, *identity, deciding_rounds);
    return {.exit_code = exit_code,
            .file = has_file && exit_code == exit_done ? options.output : ""};
}

CommandHelp measure_help() {
    const auto o = std::make_shared<MeasureRequest>();
    return {.usage = {"bucketwise measure SCENARIO -o FILE [OPTIONS]"},
            .options = measuring_options(
                *o, "file to append measurements to, one JSON object per line",
                "how long to measure, such as 2min; every round goes to the settings between "
                "which nothing is decided yet; instead of --rounds"),
            .text = measure_text,
            .arguments = scenarios(),
            .positional = {.value = o->file},
            .required = {"scenario", "output"},
            .wants = "a scenario file or a model's name, and -o with a file to write",
            .run = [o](const CommandLine& line) {
                const auto identity = rank_from_environment(environment_variable);
                const MeasureOutcome outcome =
                    measure(measure_options(*o, line, identity), identity);
                if (!outcome.file.empty()) {
                    write_output("-", measure_report(read_measurements(outcome.file).records));
                }
                return outcome.exit_code;
            }};
}

}  // namespace bucketwise
