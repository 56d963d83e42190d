// The gradients of a traced run, with sizes and names.
#pragma once

#include <cstdint>
#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// By readiness, with names and sizes. `model` has the gradients as the user knows them; without
// any, the trace must tell the sizes. Throws InputError where nothing tells them, and where the
// model's differ.
std::vector<Gradient> traced_gradients(const TracedRun& run, const Workload& model,
                                       Findings& findings);

std::int64_t elements_of(const std::vector<Gradient>& gradients);

// Completes all-reduces without a size: DDP launches a bucket when its last gradient is ready.
// Sizes tell which all-reduces are the gradients', and so the gradients' dtype.
void complete_sizes(TracedRun& run, std::vector<Gradient>& gradients, Findings& findings);

// With find_unused_parameters, buckets also hold parameters without a gradient in the step. Adds
// these elements to the last gradient of each bucket.
void add_unused(const TracedRun& run, std::vector<Gradient>& gradients, Findings& findings);

// Reports whether the all-reduces hold these gradients, in the order of readiness.
void check_sums(const TracedRun& run, const std::vector<Gradient>& gradients, Findings& findings);

}  // namespace bucketwise
