// A traced run whose parameters are sharded as the document of a scenario.
#pragma once

#include "import/replay/traced_run.h"
#include "import/replay/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/base/json.h"

namespace bucketwise {

// All but its link.
Json sharded_document(const TracedRun& run, const TracedSharding& sharding, Findings& findings);

}  // namespace bucketwise
