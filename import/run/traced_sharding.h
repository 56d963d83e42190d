// A traced run whose parameters are sharded by PyTorch's fully_shard (FSDP2): its groups, their
// sizes, the settings by which it gathers and reduces them, and the times of its collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/base/dtype.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The parameters that one fully_shard call manages.
struct TracedShardGroup {
    std::string modules;        // as FSDP2 names them: "layers.0, layers.1"; empty: the root
    std::string module;         // the first of them, its name in the scenario
    std::int64_t gathered = 0;  // elements, with padding
    std::vector<std::size_t> gradients;  // indices into TracedSharding::gradients, rising
    bool operator==(const TracedShardGroup&) const = default;

    // For messages.
    [[nodiscard]] std::string text() const { return modules.empty() ? "the root" : modules; }
};

struct TracedSharding {
    ShardingRequest request;
    std::int64_t ranks = 1;        // of the run
    std::int64_t shard_ranks = 1;  // that share parameters
    DType dtype = DType::float32;  // of the shards, which the optimizer updates
    DType gathered_dtype = DType::float32;
    DType reduced_dtype = DType::float32;
    std::vector<TracedShardGroup> groups;        // the root first, then as they were entered
    std::vector<Gradient> gradients;             // by readiness
    std::vector<TypicalCollective> collectives;  // of a step, as issued
    Bytes copied;  // by the compute stream, or the computing host, in the last micro-step
    bool operator==(const TracedSharding&) const = default;

    // Null: the module has no group.
    [[nodiscard]] const TracedShardGroup* group_of(std::int32_t module,
                                                   const TracedShards& shards) const;
    // Whether the collective is one of FSDP2's. All-reduces are where there are replicas.
    [[nodiscard]] bool has(const TracedCollective& collective) const;
    // The time of a collective of the step on the fitted link; 0: it is none of FSDP2's.
    [[nodiscard]] Duration on_link(const TracedStep& step,
                                   const TracedCollective& collective) const;
};

// Precondition: run.first() is fully sharded. `model` has the gradients as the user knows them;
// without any, the trace must tell their sizes, or they share equally what all-gathers move. Throws
// InputError for settings that the simulator does not know, and where nothing tells the sizes.
TracedSharding traced_sharding(const TracedRun& run, const Workload& model,
                               std::optional<std::int64_t> requested_ranks, Findings& findings);

}  // namespace bucketwise
