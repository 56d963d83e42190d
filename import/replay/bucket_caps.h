// The caps with which DistributedDataParallel forms the buckets that were seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/plan/strategy.h"
#include "sim/workload/workload.h"

namespace bucketwise {

struct TracedCaps {
    SyncRequest sync;        // its caps
    bool explained = false;  // whether these form the buckets that were seen
    std::string text;        // for people
    // Gradients with a bucket each: the only gradient of a module that is wrapped by itself.
    std::vector<std::size_t> alone = {};
};

// Tries the default caps, one cap, one cap with a first bucket of 1 MiB (PyTorch before 2.4) and a
// list; then the same for all but a few gradients that have buckets of their own. `gradients` are
// by readiness and of one dtype; `buckets` has the elements of each all-reduce, as issued. With
// `unused_map`, DDP looks for unused parameters and keeps the buckets of its construction, formed
// in parameter order, assumed to be the reverse of readiness.
TracedCaps caps_of(const std::vector<Gradient>& gradients, const std::vector<std::int64_t>& buckets,
                   bool unused_map);

// Writes the caps as keys of a scenario's sync.
void add_caps(const TracedCaps& caps, Json& sync);

// `certain`: no other caps form these buckets.
void report_caps(const TracedCaps& caps, const char* item, bool certain, Findings& findings);

}  // namespace bucketwise
