// A traced run as the document of a scenario, for people to read and to change.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// All but the link. `gradients` are by readiness; `model` has them as the user knows them.
Json scenario_document(const TracedRun& run, std::int64_t ranks,
                       const std::vector<Gradient>& gradients, const Workload& model,
                       Findings& findings);

struct ShardedDocument {
    Json json;         // all but the link
    Duration late{0};  // of a step: waits of the host for late ranks, written as computing
};

ShardedDocument sharded_document(const TracedRun& run, const TracedSharding& sharding,
                                 Findings& findings);

}  // namespace bucketwise
