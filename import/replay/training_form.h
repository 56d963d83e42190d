// What kind of training a run is: what the simulator has nothing for is refused by its name, and
// what is special about the rest is said.
#pragma once

#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Before gradients are sized. Throws InputError for gradients that are sharded (FSDP, HSDP, ZeRO),
// saying what was seen of it.
void refuse_sharded(const TracedRun& run);

// Throws InputError where a communication hook reduces something else than gradients (PowerSGD).
void refuse_compressed(const TracedRun& run, const std::vector<Gradient>& gradients);

// Says what torch.compile, CUDA graphs, FP8, FSDP without shards and parallel layers mean for the
// scenario.
void report_form(const TracedRun& run, Findings& findings);

}  // namespace bucketwise
