// One rank of `bucketwise bench training`.
#pragma once

#include "bench/training/options.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// Where rank 0 puts the report when our own launcher reads it: the name of a file.
constexpr const char* training_report_variable = "BUCKETWISE_TRAINING_REPORT";

// Returns the exit code.
int run_bench_training_rank(const BenchTrainingOptions& options, const RankIdentity& identity);

// What the memory model says, by rank. `workspace` and `alignment`: of the device.
std::vector<std::int64_t> simulated_memory(const BenchTrainingOptions& options,
                                           TrainingImplementation implementation, Bytes alignment,
                                           Bytes workspace);

}  // namespace bucketwise
