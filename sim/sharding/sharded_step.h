// A sharded step as a program: what the framework's hooks issue, in order.
//
// fsdp and hsdp follow torch/distributed/fsdp/_fully_shard (PyTorch 2.6 to 2.15): FSDPState decides
// when, FSDPParamGroup what. Where host and device are apart:
//
//   forward    on entering a group: its all-gather, unless it has been gathered; wait; copy out;
//   with
//              explicit prefetching the next groups' all-gathers. What is gathered ahead waits for
//              the copy out of the group before the one that was last entered, so that two groups
//              at most are under way. On leaving it its parameters are freed, the root's are not.
//   backward   on entering: its all-gather, unless gathered; wait; copy out; the all-gather of the
//              group whose forward was before its own. On leaving, or at the end of backward where
//              none of its inputs has a gradient: wait for the reduce-scatter before; copy in;
//              reduce-scatter. At the end what is left is waited for.
//
// zero3 follows deepspeed/runtime/zero (0.17). A module with parameters of its own gathers on
// entering what is missing, waits, and then gathers up to prefetch_elements of what comes next, in
// the order of the whole step, unless more than max_live_parameters would be there. On leaving, its
// parameters are freed but for those used again within max_reuse_distance, and small ones, which
// all ranks always hold and gather after the optimizer. Gradients are reduced when the next one
// would overfill a bucket; computing waits for that at the end of backward alone, and so does the
// host.
//
// All-gathers and reduce-scatters share a communicator and so follow one another in the order in
// which the host issues them; the all-reduces of hsdp have one of their own. Where the host is the
// device (Gloo on a CPU), each collective blocks it, but for all-gathers with
// asynchronous_unshard.
#pragma once

#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_input.h"
#include "sim/sharding/sharded_memory.h"

namespace bucketwise {

// `memory` is what the micro-step before ended with; the first one's holds nothing.
ShardedProgram build_sharded_micro_step(const ShardedInput& input, const ShardPlan& plan,
                                        MicroStepPlace place, const ShardedMemory& memory = {});

// What one rank holds at most during the whole step.
ShardedMemory sharded_memory(const ShardedInput& input, const ShardPlan& plan);

// All micro-steps in one.
ShardedProgram build_sharded_program(const ShardedInput& input, const ShardPlan& plan);

}  // namespace bucketwise
