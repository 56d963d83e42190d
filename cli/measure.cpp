// bucketwise measure SCENARIO: run the scenario on real ranks and write down everything measured.
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

// Throws where nothing can be measured into the output, or gone on with.
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

// By what the user has ended it, where something was measured and that is no failure; else empty.
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

int run_measure(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const MeasureOutcome outcome = measure(measure_options(line, identity), identity);
    if (!outcome.file.empty()) {
        write_output("-", measure_report(read_measurements(outcome.file).records));
    }
    return outcome.exit_code;
}

}  // namespace bucketwise
