// The gradients of a fully sharded step, by the groups that FSDP2 gathers and reduces.
#pragma once

#include "import/run/shard_collectives.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Adds them to `result`, whose groups and types are known, and to these groups. `model`: as
// traced_sharding(). Throws InputError where they are not what the groups gather.
void find_shard_gradients(const TracedStep& step, const ShardCollectives& collectives,
                          const Workload& model, Findings& findings, TracedSharding& result);

}  // namespace bucketwise
