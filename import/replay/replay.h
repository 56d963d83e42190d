// The imported step, simulated, beside the traced one: whether the scenario can be trusted.
#pragma once

#include <string>
#include <vector>

#include "import/replay/step_account.h"
#include "import/replay/trace_import.h"
#include "sim/base/units.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// One of FSDP2's collectives, too.
struct ReplayedAllReduce {
    CollectiveKind kind = CollectiveKind::all_reduce;
    Bytes traced_bytes;
    Bytes bytes;
    Duration traced_start{0};  // from the start of the step; of the trace the median
    Duration start{0};
    bool operator==(const ReplayedAllReduce&) const = default;
};

struct Replay {
    Duration traced_step{0};
    Duration step{0};
    std::vector<ReplayedAllReduce> all_reduces = {};  // as many as both have
    bool same_buckets = false;
    bool sharded = false;  // these are FSDP2's collectives, and no buckets
    std::int64_t ranks = 1;
    Duration shortest_step{0};  // of the traced ones
    Duration longest_step{0};
    StepAccount traced_account = {};
    SimulatedAccount simulated = {};

    // How far the step is off, as a share of the traced one.
    [[nodiscard]] double error() const {
        return static_cast<double>(step.count()) / static_cast<double>(traced_step.count()) - 1;
    }
    // How far the start of an all-reduce is off at most.
    [[nodiscard]] Duration largest_difference() const;
    bool operator==(const Replay&) const = default;
};

// `scenario` is the imported one, complete with its link, simulated at its own caps.
Replay replay(const TraceImport& imported, const Scenario& scenario);

std::string text_of(const Replay& replay);

// A traced step as it was, for a trace beside the simulated one. What the optimizer ran is left
// out.
TraceProcess traced_process(const TracedStep& step, const std::string& file);

}  // namespace bucketwise
