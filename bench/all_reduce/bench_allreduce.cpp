// bucketwise bench allreduce: the time, memory and exactness of all-reduces on real ranks, for
// several algorithms, sizes and numbers of ranks; what a link says they are; and what others
// published.
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bench/all_reduce/bench_allreduce_rank.h"
#include "bench/all_reduce/options.h"
#include "bench/all_reduce/result.h"
#include "bench/benches.h"
#include "cli/ranks/measurement_file.h"
#include "cli/ranks/rank_job.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {
namespace {

std::string failure_text(const LaunchFailure& failure, std::string_view algorithm, int ranks) {
    return fmt::format("{}{} ({} on {} {})",
                       failure.rank ? fmt::format("rank {} ", *failure.rank) : "", failure.reason,
                       algorithm, ranks, ranks == 1 ? "rank" : "ranks");
}

// Every algorithm and number of ranks in processes of its own, one world after another. Returns
// why it ended early, if it did.
std::optional<std::string> launch_worlds(const BenchAllReduceOptions& options,
                                         const std::vector<std::string>& arguments,
                                         const std::string& file) {
    JobRequest request;
    request.arguments = {"bench", "allreduce"};
    request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
    request.network = options.network;
    MeasureProgress line;
    for (const int ranks : options.ranks) {
        for (const AllReduceImplementation implementation : options.algorithms) {
            const std::string_view name = name_of(implementation);
            request.ranks = ranks;
            request.variables = {{algorithm_variable, std::string(name)}, {output_variable, file}};
            const std::optional<LaunchFailure> failure =
                launch_job(request, [&](const std::string& text) { line.show(text); });
            if (failure) {
                return failure_text(*failure, name, ranks);
            }
        }
    }
    return std::nullopt;
}

int run_launcher(const BenchAllReduceOptions& options, const std::vector<std::string>& arguments) {
    const TemporaryFolder folder;
    const std::string file = options.output.empty() ? folder.path() + "/records" : options.output;
    check_measurement_output(file, false);
    static_cast<void>(MeasurementFile(file));  // fails now rather than on rank 0, if it must
    const std::optional<std::string> failure = launch_worlds(options, arguments, file);
    // What was measured before a failure still counts.
    drop_torn_line(file);
    write_output("-", bench_allreduce_result(options, read_measurements(file).records));
    if (failure) {
        throw std::runtime_error(*failure);
    }
    return exit_done;
}

}  // namespace

int run_bench_allreduce(const std::vector<std::string>& arguments) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const std::optional<BenchAllReduceOptions> options =
        bench_allreduce_options(arguments, identity);
    if (!options) {
        return exit_done;
    }
    if (!options->measure) {
        if (!identity || identity->rank == 0) {
            write_output("-", bench_allreduce_result(*options, {}));
        }
        return exit_done;
    }
    return identity ? run_bench_allreduce_rank(*options, *identity)
                    : run_launcher(*options, arguments);
}

}  // namespace bucketwise
