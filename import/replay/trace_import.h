// From the steps of a trace, of one or several ranks, to a scenario that replays them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/replay/trace_comparison.h"
#include "import/replay/undisturbed.h"
#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/workload/workload.h"

namespace bucketwise {

struct TraceImportRequest {
    Workload model = {};                     // names the gradients; its times are ignored
    std::optional<std::int64_t> ranks = {};  // where no trace tells
    // A rank of the same program without communication: the times of its kernels alone.
    std::optional<PlainRun> undisturbed = {};
    // The rank whose steps are replayed, index of `ranks`; none: the one that the others wait for.
    std::optional<std::size_t> primary = {};
    bool without_idle = false;  // as if the host did nothing but what the trace shows
};

// The scenario is a document, for people to read and change; connect() (trace_link.h) reads it.
struct TraceImport {
    Json scenario;  // but for /cluster/link
    std::int64_t ranks = 1;
    std::vector<TypicalCollective> all_reduces;  // in the order they were issued
    TracedStep typical;                          // the step of about median length
    StepSummary summary;
    Findings findings;
    // The sources of the scenario, which is written again once its link is known.
    std::unique_ptr<TracedRun> run;
    std::vector<Gradient> gradients;           // by readiness
    Workload model;                            // of the request
    std::optional<KernelSlowdowns> slowdowns;  // beside all-reduces, where a trace tells
    std::optional<TracedSharding> sharding;    // of FSDP2; then there are no all_reduces
    Duration late{0};                          // as ShardedDocument::late

    [[nodiscard]] const std::vector<TypicalCollective>& collectives() const {
        return sharding ? sharding->collectives : all_reduces;
    }
};

// `ranks` are traces of one run. Throws InputError for traces that do not belong together, for
// gradients of unknown size, and for anything but data-parallel training with all-reduces or FSDP2.
TraceImport import_trace(std::vector<TracedRank> ranks, TraceImportRequest request);

}  // namespace bucketwise
