// Which caps DistributedDataParallel must have had to form the buckets that were seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/strategy.h"
#include "sim/workload/workload.h"

namespace bucketwise {

struct TracedCaps {
    SyncRequest sync;        // its caps
    bool explained = false;  // whether these give the buckets that were seen
    std::string text;        // what to say of it
    // Gradients that have buckets of their own, as those of a module that is wrapped by itself and
    // has no other.
    std::vector<std::size_t> alone = {};
};

// `gradients` are by readiness, of one dtype; `buckets`: elements of each all-reduce, as issued.
// `unused_map`: whether DDP looked for unused parameters, and so keeps the buckets of its
// construction, formed in parameter order, which is taken to be the reverse of readiness.
// The default caps where they give these buckets, else one cap, one with a first bucket of 1 MiB
// (PyTorch before 2.4), or a list; else the same of all but a few gradients that have buckets of
// their own.
TracedCaps caps_of(const std::vector<Gradient>& gradients, const std::vector<std::int64_t>& buckets,
                   bool unused_map);

}  // namespace bucketwise
