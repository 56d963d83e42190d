// bucketwise bench syncbn: time and peak memory of a BatchNorm layer that is synchronised over
// ranks, by implementation, batch and width; on real ranks, simulated, and published.
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/batch_norm/bench_syncbn_rank.h"
#include "bench/batch_norm/options.h"
#include "bench/batch_norm/report.h"
#include "bench/benches.h"
#include "cli/ranks/rank_job.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {
namespace {

MeasuredLayers measured_by_ranks(const BenchSyncBnOptions& options,
                                 const std::vector<std::string>& arguments) {
    const TemporaryFolder folder;
    const std::string file = folder.path() + "/measured.json";
    JobRequest request;
    request.arguments = {"bench", "syncbn"};
    request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
    request.network = options.network;
    request.ranks = options.ranks;
    request.variables = {{syncbn_output_variable, file}};
    std::optional<LaunchFailure> failure;
    {
        MeasureProgress line;
        failure = launch_job(request, [&](const std::string& text) { line.show(text); });
    }
    if (failure) {
        throw std::runtime_error(fmt::format(
            "{}{}", failure->rank ? fmt::format("rank {} ", *failure->rank) : "", failure->reason));
    }
    return read_measured_layers(file);
}

}  // namespace

int run_bench_syncbn(const std::vector<std::string>& arguments) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const std::optional<BenchSyncBnOptions> options = bench_syncbn_options(arguments, identity);
    if (!options) {
        return exit_done;
    }
    if (identity && options->backend != nullptr) {
        return run_bench_syncbn_rank(*options, *identity);
    }
    if (identity && identity->rank != 0) {
        return exit_done;  // nothing is measured, and one of them prints
    }
    const MeasuredLayers measured =
        options->backend == nullptr ? MeasuredLayers{} : measured_by_ranks(*options, arguments);
    write_output("-", bench_syncbn_report(*options, measured));
    return exit_done;
}

}  // namespace bucketwise
