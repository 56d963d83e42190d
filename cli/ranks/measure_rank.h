// One rank of `bucketwise measure`.
#pragma once

#include "cli/ranks/measure_request.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

// Meets the others, measures, and, on rank 0, writes the records. Returns the exit code; says why
// it failed to the launcher, or on standard error where it has none of ours.
int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity);

}  // namespace bucketwise
