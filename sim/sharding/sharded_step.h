// A sharded step as a program: the instructions of the framework's hooks, in order.
//
// fsdp and hsdp follow torch/distributed/fsdp/_fully_shard (PyTorch 2.6 to 2.15): FSDPState decides
// when, FSDPParamGroup what. Where host and device are apart:
//
//   forward    on entering a group: its all-gather, unless already gathered; wait; copy out; with
//              explicit prefetching, the next groups' all-gathers. A gather ahead waits for the
//              copy out of the group before the last entered one, so at most two groups are under
//              way. Leaving a group frees its parameters, except the root's.
//   backward   on entering: its all-gather, unless already gathered; wait; copy out; the all-gather
//              of the group that forward ran before it. On leaving, or at the end of backward if no
//              input has a gradient: wait for the previous reduce-scatter; copy in; reduce-scatter.
//              The end waits for the rest.
//
// zero3 follows deepspeed/runtime/zero (0.17). On entering, a module with parameters of its own
// gathers missing ones, waits, and then gathers up to prefetch_elements of the next parameters in
// the order of the whole step, but no more than max_live_parameters in all. Leaving a module frees
// its parameters, except those used again within max_reuse_distance and small ones, which all ranks
// always hold and gather after the optimizer. Gradients are reduced when the next one would
// overfill a bucket; computing and host wait for them only at the end of backward.
//
// All-gathers and reduce-scatters share a communicator and follow one another in the host's order;
// hsdp's all-reduces have a communicator of their own. If the host is the device (Gloo on a CPU),
// each collective blocks it, except all-gathers with asynchronous_unshard.
#pragma once

#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_input.h"

namespace bucketwise {

// `memory` is that at the end of the micro-step before; empty for the first.
ShardedProgram build_sharded_micro_step(const StepInput& input, const ShardingRequest& request,
                                        const ShardPlan& plan, MicroStepPlace place,
                                        const ShardedMemory& memory = {});

// One rank's memory during the whole step, with its peak.
ShardedMemory sharded_memory(const ShardedInput& input, const ShardPlan& plan);

// All micro-steps in one.
ShardedProgram build_sharded_program(const ShardedInput& input, const ShardPlan& plan);

}  // namespace bucketwise
