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

struct MeasuredLayers {
    std::string hardware;
    std::string libraries;
    std::map<std::size_t, MeasuredLayer> layers;  // by index of BenchSyncBnOptions::layers
};

// Throws InputError for a published file that is not one.
std::string bench_syncbn_report(const BenchSyncBnOptions& options, const MeasuredLayers& measured);

}  // namespace bucketwise
