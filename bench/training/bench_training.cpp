// bucketwise bench training: a data-parallel training run, simulated and on real ranks.
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/benches.h"
#include "bench/training/bench_training_rank.h"
#include "bench/training/options.h"
#include "bench/training/prediction.h"
#include "bench/training/report.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "hw/launch/rank_identity.h"
#include "hw/record/environment.h"

namespace bucketwise {
namespace {

// What a GPU's memory and cuBLAS's workspace come to in hw/nccl; on a CPU blocks start on cache
// lines.
std::vector<std::int64_t> memory_on_its_device(const BenchTrainingOptions& options,
                                               TrainingImplementation implementation) {
    const auto& device = std::get<ModelWorkload>(options.scenario.workload).device;
    const bool is_cpu = device && device->host_is_device;
    return simulated_memory(options, implementation, Bytes{is_cpu ? 64 : 256},
                            is_cpu ? Bytes{} : 32 * Bytes{bytes_per_mib});
}

int simulate_training(const BenchTrainingOptions& options) {
    std::vector<TrainedImplementation> results;
    for (const TrainingImplementation implementation : options.implementations) {
        const TrainingTime time =
            predict_training(options.task_of(implementation), options.scenario);
        results.push_back(
            {.implementation = implementation,
             .simulated = time,
             .simulated_full_step = time.full_step,
             .simulated_memory_bytes = memory_on_its_device(options, implementation)});
    }
    write_output(
        "-", bench_training_report(options, results, "simulated over " + options.scenario.link.name,
                                   {{"command", options.command}, {"date", utc_now()}}));
    return exit_done;
}

}  // namespace

int run_bench_training(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const BenchTrainingOptions options = bench_training_options(line, identity);
    return options.simulate ? simulate_training(options)
                            : run_bench_training_ranks(options, identity);
}

}  // namespace bucketwise
