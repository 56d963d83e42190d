// Advice on a traced step: what binds it, the cost of communication, and what to change first.
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
    bool at_most = false;  // an upper bound: the change is simulated as free
    bool operator==(const Saving&) const = default;
};

struct TraceAdvice {
    std::string binds;
    std::string communication = {};
    std::vector<Saving> savings = {};  // the largest first; each of 0.5 % or more
    Duration step{0};                  // as replayed
    double replay_error = 0;           // of the step, relative
    std::string withheld = {};         // why there are no savings; empty: there may be
    bool operator==(const TraceAdvice&) const = default;
};

// "launching: of 222.5 ms the device computes for 39.85 and waits for launches for 182.7, ..."
std::string binds_text(const TraceImport& imported, const Replay& replay);

// `replay` is of `scenario`, the imported one. Simulates each change, unless the replay is too far
// off (replay_caveat).
TraceAdvice advise(const TraceImport& imported, const Scenario& scenario, const Replay& replay);

// One sentence: the first change, and how reliable that is.
std::string verdict_text(const TraceAdvice& advice);

// Three lines.
std::string text_of(const TraceAdvice& advice);

}  // namespace bucketwise
