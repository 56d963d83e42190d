// What a traced run says of how FSDP2 shards it.
#pragma once

#include <cstdint>
#include <optional>

#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Precondition: run.first() is fully sharded. `model` has the gradients as the user knows them;
// without any the trace has to tell their sizes, or what all-gathers move is shared among them.
// Throws InputError for what the simulator has nothing for, and where nothing tells the sizes.
TracedSharding traced_sharding(const TracedRun& run, const Workload& model,
                               std::optional<std::int64_t> requested_ranks, Findings& findings);

}  // namespace bucketwise
