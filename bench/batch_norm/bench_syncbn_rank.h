// The real ranks of `bucketwise bench syncbn`.
#pragma once

#include <optional>

#include "bench/batch_norm/options.h"
#include "bench/batch_norm/report.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// Measures the layers and prints the table, in the process that launches the ranks or on rank 0 of
// another launcher. Returns the exit code. Throws std::runtime_error when a
// rank fails that it launched.
int run_bench_syncbn_ranks(const BenchSyncBnOptions& options,
                           const std::optional<RankIdentity>& identity);

}  // namespace bucketwise
