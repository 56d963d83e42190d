// The program of a step, whole and in parts.
#pragma once

#include <cstdint>

#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

// The parts of a step, in order. At the end of each but the last nothing is in flight, so they can
// be simulated one after another, and the first three, which no bucket plan changes unless
// depends_on_plan() says so, once for all plans.
Program build_opening(const StepInput& input, const SyncSettings& sync);  // broadcast of buffers
// Forward and backward of micro-step `number`, from 0, of all but the last. They are all alike, but
// that the first may be what a CUDA graph begins with, and gather parameters.
Program build_micro_step(const StepInput& input, const SyncSettings& sync, std::int64_t number,
                         const BucketPlan& plan = {});
Program build_last_forward(const StepInput& input, const SyncSettings& sync,
                           const BucketPlan& plan = {});  // of the last micro-step

// Whether the plan changes what comes before the closing part.
bool depends_on_plan(const StepInput& input, const SyncSettings& sync);

// Backward of the last micro-step, its communication, and the optimizer. `program` is overwritten;
// its storage is reused.
void build_closing(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
                   Program& program);

// All parts in one, micro-steps unrolled.
Program build_program(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan);

}  // namespace bucketwise
