// A traced run whose parameters are sharded as the document of a scenario.
#pragma once

#include <nlohmann/json.hpp>

#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

namespace bucketwise {

struct ShardedDocument {
    Json json;         // all but its link
    Duration late{0};  // of a step: what it has as computing while the host waits for late ranks
};

ShardedDocument sharded_document(const TracedRun& run, const TracedSharding& sharding,
                                 Findings& findings);

}  // namespace bucketwise
