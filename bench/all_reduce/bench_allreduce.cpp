// bucketwise bench allreduce: the time, memory and exactness of all-reduces on real ranks, for
// several algorithms, sizes and numbers of ranks; what a link says they are; and what others
// published.
#include <optional>
#include <stdexcept>
#include <string>
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
#include "hw/launch/rank_identity.h"

namespace bucketwise {
namespace {

// Every algorithm and number of ranks in processes of its own, one world after another. Returns
// why it ended early, if it did.
std::optional<std::string> launch_worlds(const BenchAllReduceOptions& options,
                                         const std::string& file) {
    MeasureProgress line;
    for (const int ranks : options.ranks) {
        for (const AllReduceImplementation implementation : options.algorithms) {
            const std::string name(name_of(implementation));
            const std::optional<LaunchFailure> failure =
                launch_job(job_of(options, ranks, implementation),
                           {{algorithm_variable, name}, {output_variable, file}}, line);
            if (failure) {
                return fmt::format("{} ({} on {} {})", text_of(*failure), name, ranks,
                                   ranks == 1 ? "rank" : "ranks");
            }
        }
    }
    return std::nullopt;
}

int run_launcher(const BenchAllReduceOptions& options) {
    const TemporaryFolder folder;
    const std::string file = options.output.empty() ? folder.path() + "/records" : options.output;
    check_measurement_output(file, false);
    static_cast<void>(MeasurementFile(file));  // fails now rather than on rank 0, if it must
    const std::optional<std::string> failure = launch_worlds(options, file);
    // What was measured before a failure still counts.
    drop_torn_line(file);
    write_output("-", bench_allreduce_result(options, read_measurements(file).records));
    if (failure) {
        throw std::runtime_error(*failure);
    }
    return exit_done;
}

}  // namespace

int run_bench_allreduce(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const BenchAllReduceOptions options = bench_allreduce_options(line, identity);
    if (!options.measure) {
        if (!identity || identity->rank == 0) {
            write_output("-", bench_allreduce_result(options, {}));
        }
        return exit_done;
    }
    return identity ? run_bench_allreduce_rank(options, *identity) : run_launcher(options);
}

}  // namespace bucketwise
