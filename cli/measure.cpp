// bucketwise measure SCENARIO: run the scenario on real ranks and write down everything measured.
#include <filesystem>
#include <stdexcept>
#include <system_error>

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

namespace fs = std::filesystem;

void check_output(const MeasureOptions& options) {
    check_measurement_output(options.output, options.resume);
    if (options.resume) {
        check_same_run(options, read_measurements(options.output).records);
    }
    const MeasurementFile writable(options.output);
}

bool holds_something(const std::string& file) {
    std::error_code ignored;
    return fs::is_regular_file(file, ignored) && fs::file_size(file, ignored) > 0;
}

std::string failure_text(const LaunchFailure& failure, const MeasureOptions& options) {
    return text_of(failure) +
           (holds_something(options.output)
                ? fmt::format("; {} keeps what was measured, --resume goes on", options.output)
                : "");
}

// By what the user has ended it, where something was measured and that is no failure; else empty.
std::string run_launcher(const MeasureOptions& options, Interruption interruption) {
    check_output(options);
    std::optional<LaunchFailure> failure;
    {
        MeasureProgress line;
        failure = launch_job(options.job, {}, line);
    }
    drop_torn_line(options.output);
    if (failure && failure->interrupted && interruption == Interruption::ends_well &&
        holds_something(options.output)) {
        return failure->reason;
    }
    if (failure) {
        throw std::runtime_error(failure_text(*failure, options));
    }
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
