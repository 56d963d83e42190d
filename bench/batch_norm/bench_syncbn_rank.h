// One rank of `bucketwise bench syncbn`.
#pragma once

#include <string>

#include "bench/batch_norm/options.h"
#include "bench/batch_norm/report.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// How our launcher tells its ranks the file in which rank 0 puts what was measured.
constexpr const char* syncbn_output_variable = "BUCKETWISE_OUTPUT";

// Returns the exit code. Under another launcher than ours rank 0 prints the table.
int run_bench_syncbn_rank(const BenchSyncBnOptions& options, const RankIdentity& identity);

// What rank 0 put into the file; empty if it did not come so far.
MeasuredLayers read_measured_layers(const std::string& path);

}  // namespace bucketwise
