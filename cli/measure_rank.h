// One rank of `bucketwise measure`.
#pragma once

#include "cli/measure_options.h"
#include "hw/rank_identity.h"

namespace bucketwise {

// How the launcher tells its ranks where to meet and on which interface to listen.
constexpr const char* store_variable = "BUCKETWISE_STORE";
constexpr const char* interface_variable = "BUCKETWISE_INTERFACE";

// Meets the others, measures, and, on rank 0, writes the records. Returns the exit code; says why
// it failed to the launcher, or on standard error where it has none of ours.
int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity);

}  // namespace bucketwise
