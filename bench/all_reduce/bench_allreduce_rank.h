// One rank of `bucketwise bench allreduce`.
#pragma once

#include "bench/all_reduce/options.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// One algorithm on the ranks that are started together: how ranks measure it.
RankJob job_of(const BenchAllReduceOptions& options, int ranks,
               AllReduceImplementation implementation);

// Returns the exit code. Our launcher says which algorithm this rank is for and reads its file.
// Under another launcher the ranks run one algorithm after another, and rank 0 prints the table.
int run_bench_allreduce_rank(const BenchAllReduceOptions& options, const RankIdentity& identity);

}  // namespace bucketwise
