// The imported step, simulated, beside the traced one: whether the scenario can be trusted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/replay/step_account.h"
#include "import/replay/trace_import.h"
#include "sim/base/caveat.h"
#include "sim/base/units.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// An all-reduce of gradients, or one of FSDP2's collectives.
struct ReplayedCollective {
    CollectiveKind kind = CollectiveKind::all_reduce;
    Bytes traced_bytes;
    Bytes bytes;
    Duration traced_start{0};  // from the start of the step; the median over the traced ones
    Duration start{0};
    bool operator==(const ReplayedCollective&) const = default;
};

struct Replay {
    StepSummary traced = {};
    Duration step{0};
    std::vector<ReplayedCollective> collectives = {};  // as many as both have
    bool same_buckets = false;
    std::int64_t ranks = 1;
    SimulatedAccount simulated = {};

    // The relative error of the simulated step.
    [[nodiscard]] double error() const {
        return static_cast<double>(step.count()) / static_cast<double>(traced.step.count()) - 1;
    }
    // The largest error of the start of a collective.
    [[nodiscard]] Duration largest_difference() const;
    bool operator==(const Replay&) const = default;
};

// Simulates `scenario`, the imported one with its link, at its own caps.
Replay replay(const TraceImport& imported, const Scenario& scenario);

std::string text_of(const Replay& replay);

// A caveat about a scenario that predicts another step than its source ("the trace") shows. Nothing
// where it is within 2 %; beyond 10 % it withholds advice.
std::optional<Caveat> replay_caveat(Duration predicted, Duration shown, std::string_view source);

// States in the scenario all known weaknesses but its link's, which the link itself states.
void state_caveats(const Replay& replayed, TraceImport& imported);

// The step of about median length, for a trace beside the simulated one. Leaves out the optimizer.
TraceProcess traced_process(const TraceImport& imported);

}  // namespace bucketwise
