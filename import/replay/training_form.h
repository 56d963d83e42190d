// The kind of training of a run: refuses by name what the simulator does not know, and reports the
// peculiarities of the rest.
#pragma once

#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Throws InputError for sharded gradients (FSDP1, HSDP, ZeRO), with a count of their collectives.
void refuse_sharded(const TracedRun& run);

// Throws InputError where a communication hook compresses gradients (PowerSGD).
void refuse_compressed(const TracedRun& run, const std::vector<Gradient>& gradients);

// Reports torch.compile, CUDA graphs, FP8, FSDP without shards and parallel layers.
void report_form(const TracedRun& run, Findings& findings);

}  // namespace bucketwise
