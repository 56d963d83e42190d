// A traced run whose parameters are sharded by PyTorch's fully_shard (FSDP2): which groups it had,
// how large they are, by which settings it gathers and reduces them, and what that takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/trace/steps.h"
#include "sim/base/dtype.h"
#include "sim/link/collective.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// What one fully_shard call manages.
struct TracedShardGroup {
    std::string modules;        // as FSDP2 names them: "layers.0, layers.1"; empty: the root
    std::string module;         // what the scenario calls them: the first
    std::int64_t gathered = 0;  // elements, with what is padded
    std::vector<std::size_t> gradients;  // indices into TracedSharding::gradients, rising
    bool operator==(const TracedShardGroup&) const = default;
};

// One of FSDP2's, alike in every step.
struct TracedShardCollective {
    CollectiveKind kind = CollectiveKind::all_gather;
    Bytes bytes;                       // of all ranks that take part
    Duration start{0};                 // median over the steps, from the start of the step
    std::vector<double> wire_us = {};  // estimates of what it takes; empty: nothing tells
    Duration on_link{0};               // what it takes on the link that is fitted to them
    bool operator==(const TracedShardCollective&) const = default;
};

struct TracedSharding {
    ShardingRequest request;
    std::int64_t ranks = 1;        // of the run
    std::int64_t shard_ranks = 1;  // that share parameters
    DType dtype = DType::float32;  // of the shards, which the optimizer updates
    DType gathered_dtype = DType::float32;
    DType reduced_dtype = DType::float32;
    std::vector<TracedShardGroup> groups;            // the root first, then as they were entered
    std::vector<Gradient> gradients;                 // by readiness
    std::vector<TracedShardCollective> collectives;  // of a step, as issued
    // What the compute stream, or the host that computes, copies in the last micro-step.
    Bytes copied;
    bool operator==(const TracedSharding&) const = default;

    // Null: it has no group.
    [[nodiscard]] const TracedShardGroup* group_of(std::int32_t module,
                                                   const TracedShards& shards) const;
    // Whether the collective is one of FSDP2's: all-reduces are where there are replicas.
    [[nodiscard]] bool has(const TracedCollective& collective) const;
    // What the collective, one of the step's, takes on the fitted link; 0: it is none of FSDP2's.
    [[nodiscard]] Duration on_link(const TracedStep& step,
                                   const TracedCollective& collective) const;
};

}  // namespace bucketwise
