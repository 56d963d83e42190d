// One rank of `bucketwise bench allreduce`.
#pragma once

#include "bench/all_reduce/options.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// How our launcher tells its ranks what their arguments do not: which algorithm is theirs, and the
// file in which rank 0 puts its records.
constexpr const char* algorithm_variable = "BUCKETWISE_ALGORITHM";
constexpr const char* output_variable = "BUCKETWISE_OUTPUT";

// Returns the exit code. Under another launcher than ours the ranks run one algorithm after
// another, and rank 0 prints the table.
int run_bench_allreduce_rank(const BenchAllReduceOptions& options, const RankIdentity& identity);

}  // namespace bucketwise
