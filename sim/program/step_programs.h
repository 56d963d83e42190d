// The program of a step, whole and in parts.
#pragma once

#include <cstdint>

#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

// The parts of a step, in order. Nothing is in flight between two parts, so they can be simulated
// one after another. No bucket plan changes the first three unless depends_on_plan() says so; one
// simulation then serves all plans.
Program build_opening(const StepInput& input, const SyncSettings& sync);  // broadcast of buffers
// Forward and backward of micro-step `number`, from 0, before the last. All are equal, except that
// a CUDA graph can begin with the first, which also gathers parameters.
Program build_micro_step(const StepInput& input, const SyncSettings& sync, std::int64_t number,
                         const BucketPlan& plan = {});
Program build_last_forward(const StepInput& input, const SyncSettings& sync,
                           const BucketPlan& plan = {});  // of the last micro-step

// Whether the plan changes the parts before the closing part.
bool depends_on_plan(const StepInput& input, const SyncSettings& sync);

// Backward of the last micro-step, its communication, and the optimizer. Overwrites `program` and
// reuses its storage.
void build_closing(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
                   Program& program);

// All parts in one, micro-steps unrolled.
Program build_program(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan);

}  // namespace bucketwise
