// The step that stands for all of a traced run, each of its marks at the median, and what it says
// of the costs of copies and of issuing collectives.
#pragma once

#include <optional>
#include <vector>

#include "import/kineto/traced_gradients.h"
#include "import/kineto/traced_run.h"
#include "import/source/findings.h"
#include "sim/base/units.h"

namespace bucketwise {

struct TypicalStep {
    std::vector<StepMark> forward;
    std::vector<StepMark> backward;
    Duration copy_launch{0};              // host time to launch one
    std::optional<Duration> host_issue;   // host time to issue a collective; none: nothing tells
    std::optional<double> copy_gb_per_s;  // of gradients into and out of buckets
    bool views = false;                   // gradients are views of their buckets
};

bool is_copy(const StepMark& mark);

TypicalStep typical_step(const TracedRun& run, const std::vector<NamedGradient>& gradients,
                         Findings& findings);

}  // namespace bucketwise
