// bucketwise measure SCENARIO: run the scenario on real ranks and write down everything measured.
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "cli/commands.h"
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

std::string failure_text(const LaunchFailure& failure, const MeasureOptions& options) {
    std::error_code ignored;
    const bool kept =
        fs::is_regular_file(options.output, ignored) && fs::file_size(options.output, ignored) > 0;
    return text_of(failure) +
           (kept ? fmt::format("; {} keeps what was measured, --resume goes on", options.output)
                 : "");
}

void run_launcher(const MeasureOptions& options) {
    check_output(options);
    std::optional<LaunchFailure> failure;
    {
        MeasureProgress line;
        failure = launch_job(options.job, {}, line);
    }
    drop_torn_line(options.output);
    if (failure) {
        throw std::runtime_error(failure_text(*failure, options));
    }
}

}  // namespace

MeasureOutcome measure(const MeasureOptions& options, const std::optional<RankIdentity>& identity) {
    if (!identity) {
        run_launcher(options);
        return {.file = options.output};
    }
    // Where somebody else started the ranks, the first of them has the file.
    const bool has_file = identity->rank == 0 && !is_own_rank(identity);
    if (has_file) {
        check_output(options);
    }
    const int exit_code = run_measure_rank(options, *identity);
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
