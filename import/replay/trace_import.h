// From the steps of a trace, of one or several ranks, to a scenario that replays them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/replay/step_account.h"
#include "import/replay/trace_comparison.h"
#include "import/replay/undisturbed.h"
#include "import/run/traced_gradients.h"
#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

namespace bucketwise {

struct TraceImportRequest {
    Workload model = {};  // that has the gradients, to name them; its times are not looked at
    std::optional<std::int64_t> ranks = {};  // where no trace tells
    // A rank of the same program without communication: what its kernels take alone.
    std::optional<PlainRun> undisturbed = {};
};

// The scenario is a document, as that is what is written, read and changed by people; what connects
// it (trace_link.h) reads it as it stands.
struct TraceImport {
    Json scenario;  // but for /cluster/link
    std::int64_t ranks = 1;
    Duration step{0};         // median
    Duration device_busy{0};  // likewise
    Duration shortest{0};     // of the steps
    Duration longest{0};
    StepAccount account;
    std::vector<TracedAllReduce> all_reduces;  // in the order they were issued
    TracedStep typical;                        // the step of about median length
    StepSummary summary;
    std::string file;  // that it is of
    Findings findings;
    // What the scenario was made of, as it is made again once its link is known.
    std::unique_ptr<TracedRun> run;
    std::vector<Gradient> gradients;           // by readiness
    Workload model;                            // of the request
    std::optional<KernelSlowdowns> slowdowns;  // beside all-reduces, where a trace tells
    std::optional<TracedSharding> sharding;    // of FSDP2; then there are no all_reduces
    Duration late{0};                          // as sharded_document says
};

// `ranks` are traces of one run. Throws InputError for traces that do not belong together, for
// gradients whose sizes nothing tells, and for what is no data-parallel training with all-reduces.
TraceImport import_trace(std::vector<TracedRank> ranks, TraceImportRequest request);

}  // namespace bucketwise
