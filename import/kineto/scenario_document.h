// A traced run as the document of a scenario: what the user is given, to read and to change.
#pragma once

#include <cstdint>
#include <vector>

#include "import/kineto/traced_gradients.h"
#include "import/kineto/traced_run.h"
#include "import/kineto/typical_step.h"
#include "import/source/findings.h"
#include "sim/base/json.h"

namespace bucketwise {

struct ImportedParts {
    const TracedRun& run;
    std::int64_t ranks;
    const std::vector<NamedGradient>& gradients;  // by readiness
    const NamedGradients& named;                  // as the user knows them
    const TypicalStep& step;
};

// All but its link.
Json scenario_document(const ImportedParts& parts, Findings& findings);

}  // namespace bucketwise
