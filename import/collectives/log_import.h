// From what the ranks of one run communicated to a scenario: buckets, when they were issued, and
// what lies in between.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/collectives/collective_log.h"
#include "import/source/findings.h"
#include "sim/base/dtype.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/workload.h"

namespace bucketwise {

struct LogImportRequest {
    Workload model = {};  // that has the gradients, to tell buckets apart; its times are not used
    std::optional<std::int64_t> ranks = {};  // where no log tells
    std::optional<std::string> group = {};   // process group of the gradients
    std::optional<Duration> forward = {};    // where no log has times; both or neither
    std::optional<Duration> backward = {};
    bool same_host = false;  // one clock for all logs
};

// An all-reduce of gradients, alike in every step.
struct LoggedBucket {
    std::int64_t elements = 0;
    DType dtype = DType::float32;
    Duration ready{0};                 // from the start of backward
    std::vector<double> wire_us = {};  // estimates of what it takes once every rank is there
    bool operator==(const LoggedBucket&) const = default;

    [[nodiscard]] Bytes size() const { return elements * element_size(dtype); }
};

struct LogImport {
    Json scenario;  // but for /cluster/link
    std::string file;
    std::string backend;
    std::string version;
    std::int64_t ranks = 1;
    std::vector<LoggedBucket> buckets;  // in the order of issue
    std::optional<Duration> period;     // of a step, where a clock tells
    Duration pause{0};  // with a clock: from the last issue to the next step's first
    // What of the pause the last all-reduces take, where durations tell; none: they do not.
    std::optional<Duration> waiting = {};
    Findings findings;
};

// Throws InputError for logs that do not belong together, for what gradient_steps() refuses, where
// nothing tells times or the number of ranks, and for a model whose gradients form other buckets.
LogImport import_logs(const std::vector<CollectiveLog>& logs, const LogImportRequest& request);

// Puts a link into the document and takes out of forward what the host waits for all-reduces, as
// far as it is known or the link tells it; reads the scenario that it then is. `link`: a file or a
// preset, or, where there is none, one through the durations. Throws InputError where neither is.
Scenario connect(LogImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file);

// States in the document what is known to be weak in it.
void state_caveats(const Scenario& scenario, LogImport& imported);

// The step that the scenario predicts, beside the one that the logs show.
std::string replay_text(const LogImport& imported, const Scenario& scenario);

}  // namespace bucketwise
