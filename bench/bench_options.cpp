#include "bench/bench_options.h"

#include <fmt/format.h>

#include "cli/ranks/backends.h"
#include "cli/shell/option_values.h"

namespace bucketwise {

namespace po = boost::program_options;

bool is_measured(const po::variables_map& values) {
    return values.count("simulate") == 0 || is_typed(values, "backend");
}

std::vector<std::string> bench_command(std::string_view name,
                                       const std::vector<std::string>& arguments) {
    std::vector<std::string> command{"bucketwise", "bench", std::string(name)};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

std::string text_of_ranks(std::int64_t ranks) {
    return fmt::format("{} {}", ranks, ranks == 1 ? "rank" : "ranks");
}

void read_job(std::string_view name, const po::variables_map& values,
              const std::optional<RankIdentity>& identity, BenchOptions& options) {
    options.backend = &requested_backend(values);
    options.request = backend_request(values);
    options.backend->check(options.request);
    options.network =
        job_network(values, identity, fmt::format("bench {}", name), standard_deadline);
}

RankJob job_of(const BenchOptions& options, std::int64_t ranks) {
    return {.command = options.command,
            .ranks = static_cast<int>(ranks),
            .backend = options.backend,
            .request = options.request,
            .network = options.network,
            .order = {.rounds = options.rounds, .seed = options.seed},
            .document = options.document};
}

}  // namespace bucketwise
