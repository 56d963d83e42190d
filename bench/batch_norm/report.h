// The table that `bucketwise bench syncbn` prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/batch_norm/options.h"

namespace bucketwise {

// One layer on real ranks: the slowest rank's time of each step, the rank with most memory.
struct MeasuredLayer {
    std::vector<double> samples_us;
    std::int64_t peak_memory_bytes = 0;
};

using MeasuredLayers = std::map<std::size_t, MeasuredLayer>;  // by index of the options' layers

// `environment`: of what was measured. Throws InputError for a published file that is not one.
std::string bench_syncbn_report(const BenchSyncBnOptions& options,
                                const EnvironmentRecord& environment,
                                const MeasuredLayers& measured);

}  // namespace bucketwise
