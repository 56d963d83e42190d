// The real ranks of `bucketwise bench training`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/training/options.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// Trains and prints the report, in the process that launches the ranks or on rank 0 of another
// launcher. Returns the exit code. Throws InputError for published results that cannot be read and
// std::runtime_error when a rank fails that it launched.
int run_bench_training_ranks(const BenchTrainingOptions& options,
                             const std::optional<RankIdentity>& identity);

// What the memory model says, by rank. `workspace` and `alignment`: of the device.
std::vector<std::int64_t> simulated_memory(const BenchTrainingOptions& options,
                                           TrainingImplementation implementation, Bytes alignment,
                                           Bytes workspace);

}  // namespace bucketwise
