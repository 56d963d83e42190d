// Where the parts of parameters and gradients lie in what a group of a sharded step sends and
// receives, in elements, whatever the memory is.
//
// As PyTorch's fully_shard lays them out: each parameter is cut along its first dimension into as
// many equal parts as there are ranks, the last ones padded. Rank r's parts of all parameters of a
// group lie together, one after the other: that is what a rank gathers from and reduces to. What is
// gathered, or to be scattered, is all ranks' parts, rank by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/sharding/shard_plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// A parameter within its group.
struct ShardedParameter {
    std::int32_t parameter = 0;  // of Workload::gradients
    std::int64_t numel = 0;      // of all of it
    std::int64_t part = 0;       // of each rank's part, with what is padded
    std::int64_t offset = 0;     // of a part among a rank's
    bool operator==(const ShardedParameter&) const = default;

    // Of a rank's part: where it begins in the parameter, and how much of it is not padded.
    [[nodiscard]] std::int64_t first_of(std::int64_t rank) const { return rank * part; }
    [[nodiscard]] std::int64_t numel_of(std::int64_t rank) const;
};

struct ShardedGroupLayout {
    std::vector<ShardedParameter> parameters;
    std::int64_t part = 0;  // elements of one rank
    bool operator==(const ShardedGroupLayout&) const = default;

    // Of a rank's part of a parameter, in what is gathered or to be scattered.
    [[nodiscard]] std::int64_t place(const ShardedParameter& of, std::int64_t rank) const {
        return rank * part + of.offset;
    }
};

// By group of the plan.
std::vector<ShardedGroupLayout> layout_of(const ShardPlan& plan,
                                          const std::vector<Gradient>& gradients);

}  // namespace bucketwise
