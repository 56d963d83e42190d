// bucketwise measure SCENARIO: run the scenario on real ranks and write down everything measured.
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/measure_options.h"
#include "cli/measure_rank.h"
#include "cli/measure_report.h"
#include "cli/ranks/measurement_file.h"
#include "cli/ranks/rank_job.h"
#include "cli/resumption.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "hw/launch/launcher.h"
#include "hw/launch/rank_identity.h"

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

std::optional<LaunchFailure> launch(const MeasureOptions& options,
                                    const std::vector<std::string>& arguments) {
    JobRequest request;
    request.arguments = {"measure"};
    request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
    request.ranks = static_cast<int>(options.scenario.group.ranks);
    request.network = options.network;
    MeasureProgress line;
    return launch_job(request, [&](const std::string& text) { line.show(text); });
}

std::string failure_text(const LaunchFailure& failure, const MeasureOptions& options) {
    std::error_code ignored;
    const bool kept =
        fs::is_regular_file(options.output, ignored) && fs::file_size(options.output, ignored) > 0;
    const std::string who = failure.rank ? fmt::format("rank {} ", *failure.rank) : "";
    return who + failure.reason +
           (kept ? fmt::format("; {} keeps what was measured, --resume goes on", options.output)
                 : "");
}

void run_launcher(const MeasureOptions& options, const std::vector<std::string>& arguments) {
    check_output(options);
    const std::optional<LaunchFailure> failure = launch(options, arguments);
    drop_torn_line(options.output);
    if (failure) {
        throw std::runtime_error(failure_text(*failure, options));
    }
}

// A rank that somebody else started. The first one has the file.
int run_foreign_rank(const MeasureOptions& options, const RankIdentity& identity) {
    if (identity.rank == 0) {
        check_output(options);
    }
    return run_measure_rank(options, identity);
}

}  // namespace

MeasureOutcome measure(const std::vector<std::string>& arguments) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const std::optional<MeasureOptions> options = measure_options(arguments, identity);
    if (!options) {
        return {};
    }
    if (!identity) {
        run_launcher(*options, arguments);
        return {.file = options->output};
    }
    if (is_own_rank(identity)) {
        return {.exit_code = run_measure_rank(*options, *identity)};
    }
    const int exit_code = run_foreign_rank(*options, *identity);
    const bool has_file = identity->rank == 0 && exit_code == exit_done;
    return {.exit_code = exit_code, .file = has_file ? options->output : ""};
}

int run_measure(const std::vector<std::string>& arguments) {
    const MeasureOutcome outcome = measure(arguments);
    if (!outcome.file.empty()) {
        write_output("-", measure_report(read_measurements(outcome.file).records));
    }
    return outcome.exit_code;
}

}  // namespace bucketwise
