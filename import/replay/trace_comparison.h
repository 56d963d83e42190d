// Two traces side by side, before and after a change: where the milliseconds went.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "import/replay/step_account.h"
#include "import/run/traced_gradients.h"
#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "sim/base/units.h"

namespace bucketwise {

// Of what is called alike: how often it runs in a step, and how long in all.
struct OperationTotal {
    std::int64_t count = 0;
    Duration device{0};
    bool operator==(const OperationTotal&) const = default;
};

// A traced step in numbers, medians over the steps.
struct StepSummary {
    Duration step{0};
    Duration shortest{0};
    Duration longest{0};
    StepAccount account = {};
    Duration launching{0};         // that the host takes for all it issues
    std::int64_t operations = 0;   // on the compute stream
    std::int64_t all_reduces = 0;  // of FSDP2 all-gathers and reduce-scatters too
    Bytes all_reduced = {};
    Duration wire{0};  // of these, waiting for other ranks left out
    bool sharded = false;
    std::map<std::string, OperationTotal> by_name = {};
    bool operator==(const StepSummary&) const = default;
};

StepSummary summary_of(const TracedRun& run, const std::vector<TracedAllReduce>& all_reduces);
StepSummary summary_of(const TracedRun& run, const TracedSharding& sharding);

// What is said of it first, then a table of the step's parts, then the operations that changed
// most.
std::string comparison_text(const StepSummary& before, const std::string& before_name,
                            const StepSummary& after, const std::string& after_name);

}  // namespace bucketwise
