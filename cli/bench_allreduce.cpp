// bucketwise bench allreduce: the time, memory and exactness of all-reduces on real ranks, for
// several algorithms, sizes and numbers of ranks.
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/bench_allreduce_options.h"
#include "cli/bench_allreduce_rank.h"
#include "cli/bench_allreduce_report.h"
#include "cli/command.h"
#include "cli/files.h"
#include "cli/measurement_file.h"
#include "cli/progress.h"
#include "cli/rank_job.h"
#include "hw/rank_identity.h"

namespace bucketwise {
namespace {

// Every algorithm and number of ranks in processes of its own, one world after another.
void launch_worlds(const BenchAllReduceOptions& options, const std::vector<std::string>& arguments,
                   const std::string& file) {
    JobRequest request;
    request.arguments = {"bench", "allreduce"};
    request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
    request.network = options.network;
    MeasureProgress line;
    for (const int ranks : options.ranks) {
        for (const AllReduceImplementation implementation : options.algorithms) {
            const std::string name{name_of(implementation)};
            request.ranks = ranks;
            request.variables = {{algorithm_variable, name}, {output_variable, file}};
            if (const auto failure =
                    launch_job(request, [&](const std::string& text) { line.show(text); })) {
                const std::string who =
                    failure->rank ? fmt::format("rank {} ", *failure->rank) : "";
                throw std::runtime_error(fmt::format("{}{} ({} on {} {})", who, failure->reason,
                                                     name, ranks, ranks == 1 ? "rank" : "ranks"));
            }
        }
    }
}

// Also after a failure: what was measured until then still counts.
void print_measured(const BenchAllReduceOptions& options, const std::string& file) {
    drop_torn_line(file);
    write_output("-", bench_allreduce_report(read_measurements(file).records, options.format));
}

int run_launcher(const BenchAllReduceOptions& options, const std::vector<std::string>& arguments) {
    const TemporaryFolder folder;
    const std::string file = options.output.empty() ? folder.path() + "/records" : options.output;
    check_new_file(file);
    const MeasurementFile writable(file);
    try {
        launch_worlds(options, arguments, file);
    } catch (const std::runtime_error&) {
        print_measured(options, file);
        throw;
    }
    print_measured(options, file);
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
    return identity ? run_bench_allreduce_rank(*options, *identity)
                    : run_launcher(*options, arguments);
}

}  // namespace bucketwise
