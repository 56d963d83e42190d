// The gradients of a traced run: how large they are and what they are called.
#pragma once

#include <vector>

#include "import/kineto/all_reduces.h"
#include "import/kineto/traced_run.h"
#include "import/source/findings.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// By readiness, with names and sizes. `model` has them as the user knows them: without gradients
// the trace has to tell the sizes. Throws InputError where nothing tells them, and where the
// model's are others.
std::vector<Gradient> traced_gradients(const TracedRun& run, const Workload& model,
                                       Findings& findings);

// Where no event has an all-reduce's size: DDP launches a bucket as its last gradient is ready.
// With the sizes it is told which all-reduces are the gradients', and so their dtype.
void complete_sizes(TracedRun& run, std::vector<Gradient>& gradients, Findings& findings);

// Says whether the all-reduces hold these gradients, in the order of readiness.
void check_sums(const TracedRun& run, const std::vector<Gradient>& gradients, Findings& findings);

}  // namespace bucketwise
