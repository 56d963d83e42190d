// What a person wants to know first of a traced step: what binds it, what communication costs it,
// and what to change.
#pragma once

#include <string>
#include <vector>

#include "import/replay/replay.h"
#include "import/replay/trace_import.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct Saving {
    std::string change;    // "bf16_compress_hook"
    Duration saves{0};     // of a step
    bool at_most = false;  // an upper bound, as nothing comes for free
    bool operator==(const Saving&) const = default;
};

struct TraceAdvice {
    std::string binds;
    std::string communication;
    std::vector<Saving> savings;  // the largest first; none that saves less than 0.5 %
    Duration step{0};             // as replayed
    double replay_error = 0;      // of the step, as a share
    std::string withheld = {};    // why nothing is said of savings; empty: they are
    bool operator==(const TraceAdvice&) const = default;
};

// `replay` is of `scenario`, the imported one. Each saving is one simulation, or a few; none is
// made where the replay is so far off that they would mislead (poor_replay_error).
TraceAdvice advise(const TraceImport& imported, const Scenario& scenario, const Replay& replay);

// What to do first, and how far that is to be relied on: one sentence.
std::string verdict_text(const TraceAdvice& advice);

// Three lines.
std::string text_of(const TraceAdvice& advice);

}  // namespace bucketwise
