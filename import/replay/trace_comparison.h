// A traced step in numbers, and two traces side by side, before and after a change.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "import/replay/step_account.h"
#include "import/run/traced_run.h"
#include "sim/base/units.h"

namespace bucketwise {

// Operations of one name in a step: their number and total time.
struct OperationTotal {
    std::int64_t count = 0;
    Duration device{0};
    bool operator==(const OperationTotal&) const = default;
};

// Medians over the steps.
struct StepSummary {
    std::string file = {};
    Duration step{0};
    Duration shortest{0};
    Duration longest{0};
    StepAccount account = {};
    Duration launching{0};         // host time to issue everything
    std::int64_t operations = 0;   // on the compute stream
    std::int64_t collectives = 0;  // all-reduces of gradients, or FSDP2's collectives
    Bytes communicated = {};       // by these
    Duration wire{0};              // of these, without waiting for other ranks
    bool sharded = false;
    std::map<std::string, OperationTotal> by_name = {};
    bool operator==(const StepSummary&) const = default;
};

StepSummary summary_of(const TracedRun& run, const std::vector<TypicalCollective>& collectives,
                       bool sharded);

// The verdict, a table of the step's parts, and the operations that changed most.
std::string comparison_text(const StepSummary& before, const StepSummary& after);

}  // namespace bucketwise
