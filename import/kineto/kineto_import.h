// From the steps of a trace, of one or several ranks, to a scenario that replays them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/kineto/steps.h"
#include "import/source/byte_source.h"
#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

namespace bucketwise {

// A trace without its events.
struct TracedRank {
    std::string file;
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> world_size;
    std::string backend;
    std::string nccl_version;
    std::string device;
    std::int64_t events_read = 0;
    bool has_device = false;
    std::vector<TracedStep> steps;
    bool operator==(const TracedRank&) const = default;
};

// Throws InputError as read_kineto_trace() and traced_steps() do.
TracedRank read_traced_rank(const ByteSource& source, const std::string& file);

// A gradient as the user knows it, to name those of a trace.
struct NamedGradient {
    std::string name;
    std::int64_t numel = 0;
    bool operator==(const NamedGradient&) const = default;
};

struct KinetoImportRequest {
    // In parameter order, and the order in which backward makes them ready (indices); empty: the
    // trace has to tell the sizes.
    std::vector<NamedGradient> parameters;
    std::vector<std::int32_t> readiness;
    std::optional<std::int64_t> ranks;  // where no trace tells
};

// One all-reduce of gradients, alike in every step.
struct TracedAllReduce {
    Bytes bytes;
    Duration start{0};                 // median over the steps, from the start of the step
    std::vector<double> wire_us = {};  // estimates of what it takes once every rank is there
    bool operator==(const TracedAllReduce&) const = default;
};

struct KinetoImport {
    Json scenario;  // but for /cluster/link
    std::int64_t ranks = 1;
    Duration step{0};                          // median
    Duration device_busy{0};                   // likewise
    std::vector<TracedAllReduce> all_reduces;  // in the order they were issued
    std::string element;                       // what travels: "float32", ...
    std::optional<Duration> host_issue;        // host time to issue one; none: nothing tells
    std::optional<double> copy_gb_per_s;       // of gradients into and out of buckets
    TracedStep typical;                        // the step of about median length
    std::string file;                          // that it is of
    std::vector<Finding> findings;
};

// `ranks` are traces of one run. Throws InputError for traces that do not belong together, for
// gradients whose sizes nothing tells, and for what is no data-parallel training with all-reduces.
KinetoImport import_kineto(const std::vector<TracedRank>& ranks,
                           const KinetoImportRequest& request);

}  // namespace bucketwise
