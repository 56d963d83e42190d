// From the collectives that the ranks of one run logged to a scenario: buckets, when they were
// issued, and the time between steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/collectives/collective_log.h"
#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/workload.h"

namespace bucketwise {

struct LogImportRequest {
    Workload model = {};  // has the gradients, to tell buckets apart; its times are ignored
    std::optional<std::int64_t> ranks = {};  // where no log tells
    std::optional<std::string> group = {};   // process group of the gradients
    std::optional<Duration> forward = {};    // where no log has times; both or neither
    std::optional<Duration> backward = {};
    bool same_host = false;  // one clock for all logs
};

struct LogImport {
    Json scenario;  // but for /cluster/link
    std::string file;
    std::string backend;
    std::string version;
    std::int64_t ranks = 1;
    // The all-reduces of a step, in the order of issue; each starts when its gradients are ready,
    // from the start of backward.
    std::vector<TypicalCollective> buckets;
    std::optional<Duration> period;  // of a step, where a clock tells
    Duration pause{0};               // with a clock: from the last issue to the next step's first
    // The part of the pause that the last all-reduces take, where durations tell.
    std::optional<Duration> waiting = {};
    Findings findings;
};

// Throws InputError for logs that do not belong together, as gradient_steps() does, where nothing
// tells times or the number of ranks, and for a model whose gradients form other buckets.
LogImport import_logs(const std::vector<CollectiveLog>& logs, const LogImportRequest& request);

// Puts a link into the document, takes the host's wait for all-reduces, logged or as the link has
// it, out of forward, and reads the complete scenario. `link`: a file or a preset, else a link
// fitted to the durations. Throws InputError where there is none.
Scenario connect(LogImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file);

// States the known weaknesses in the document.
void state_caveats(const Scenario& scenario, LogImport& imported);

// The predicted step beside the logged one.
std::string replay_text(const LogImport& imported, const Scenario& scenario);

}  // namespace bucketwise
