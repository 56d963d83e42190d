// What `bucketwise bench allreduce` prints at its end: what was measured, beside what was asked to
// be simulated and what was published.
#pragma once

#include <string>
#include <vector>

#include "bench/all_reduce/options.h"
#include "hw/record/measurement.h"

namespace bucketwise {

std::string bench_allreduce_result(const BenchAllReduceOptions& options,
                                   const std::vector<Measurement>& records);

}  // namespace bucketwise
