// bucketwise measure SCENARIO: run the scenario on real ranks and write down everything measured.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/files.h"
#include "cli/measure_options.h"
#include "cli/measure_rank.h"
#include "cli/measure_report.h"
#include "cli/measurement_file.h"
#include "cli/progress.h"
#include "hw/launcher.h"
#include "hw/rank_identity.h"
#include "hw/shaped_network.h"
#include "sim/error.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// A folder that only this user sees, removed at the end.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::error_code error;
        const fs::path parent = fs::temp_directory_path(error);
        if (error) {
            throw std::system_error(error, "the folder for temporary files that TMPDIR names");
        }
        std::string name = (parent / "bucketwise-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::system_error(errno, std::generic_category(), name);
        }
        path_ = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] std::string path() const { return path_.string(); }

  private:
    fs::path path_;
};

// What must be the same for a run to go on with another's file.
void check_same_run(const MeasureOptions& options, const std::vector<Measurement>& records) {
    if (records.empty() || !std::holds_alternative<EnvironmentRecord>(records.front())) {
        throw InputError(options.output, "", "measurements to resume, an environment first",
                         records.empty() ? "no whole line" : "another record");
    }
    for (const Measurement& measurement : records) {
        const auto* earlier = std::get_if<EnvironmentRecord>(&measurement);
        if (earlier == nullptr) {
            continue;
        }
        const std::string rate = options.link_rate ? text_of(*options.link_rate) : "";
        const auto differ = [&](const char* pointer, const std::string& then,
                                const std::string& now) {
            if (then != now) {
                throw InputError(options.output, pointer, "the same as now, " + now, then);
            }
        };
        const Transport transport = transport_of(options);
        differ("/ranks", std::to_string(earlier->transport.ranks), std::to_string(transport.ranks));
        differ("/algorithm", earlier->transport.algorithm, transport.algorithm);
        differ("/implementation", earlier->transport.implementation, transport.implementation);
        differ("/link_rate", earlier->link_rate.empty() ? "none" : earlier->link_rate,
               rate.empty() ? "none" : rate);
        differ("/seed", std::to_string(earlier->seed), std::to_string(options.schedule.seed));
        if (earlier->scenario != options.scenario_text) {
            throw InputError(options.output, "/scenario", "the scenario that is measured now",
                             "another one");
        }
    }
}

void check_output(const MeasureOptions& options) {
    check_measurement_output(options.output, options.resume);
    if (options.resume) {
        check_same_run(options, read_measurements(options.output).records);
    }
    const MeasurementFile writable(options.output);
}

std::vector<std::string> rank_command(const std::vector<std::string>& arguments) {
    std::vector<std::string> command{fs::read_symlink("/proc/self/exe").string(), "measure"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

std::optional<LaunchFailure> launch(const MeasureOptions& options,
                                    const std::vector<std::string>& arguments) {
    const TemporaryFolder store;
    const auto ranks = static_cast<int>(options.scenario.group.ranks);
    LaunchRequest request;
    request.command = rank_command(arguments);
    request.variables = {{store_variable, store.path()}};
    request.ranks = ranks;
    request.deadline = options.deadline;
    std::optional<ShapedNetwork> network;
    if (options.link_rate) {
        network.emplace(ranks, *options.link_rate);
        request.before_exec = [&](int rank) { return network->enter(rank); };
        request.variables.emplace_back(interface_variable, network->interface());
    }
    MeasureProgress line;
    return launch_ranks(request, [&](const RankProgress& progress) {
        if (progress.rank == 0) {
            line.show(progress.text);
        }
    });
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

int run_launcher(const MeasureOptions& options, const std::vector<std::string>& arguments) {
    check_output(options);
    const std::optional<LaunchFailure> failure = launch(options, arguments);
    drop_torn_line(options.output);
    if (failure) {
        throw std::runtime_error(failure_text(*failure, options));
    }
    write_output("-", measure_report(read_measurements(options.output).records));
    return exit_done;
}

// The next file to be opened would take the number of a stream that the caller has closed, and what
// is printed would go there.
void occupy_standard_streams() {
    int descriptor = -1;
    do {
        descriptor = ::open("/dev/null", O_RDWR);
    } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    ::close(descriptor);
}

// A rank that somebody else started. The first one has the file, and reports.
int run_foreign_rank(const MeasureOptions& options, const RankIdentity& identity) {
    if (identity.rank == 0) {
        check_output(options);
    }
    const int exit_code = run_measure_rank(options, identity);
    if (identity.rank == 0 && exit_code == exit_done) {
        write_output("-", measure_report(read_measurements(options.output).records));
    }
    return exit_code;
}

}  // namespace

int run_measure(const std::vector<std::string>& arguments) {
    occupy_standard_streams();
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    std::optional<MeasureOptions> options = measure_options(arguments, identity);
    if (!options) {
        return exit_done;
    }
    if (!identity) {
        return run_launcher(*options, arguments);
    }
    return identity->launcher == "bucketwise" ? run_measure_rank(*options, *identity)
                                              : run_foreign_rank(*options, *identity);
}

}  // namespace bucketwise
