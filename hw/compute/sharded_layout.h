// Where the parts of parameters and gradients lie in what a collective of a sharded step sends and
// receives, in elements, whatever the memory is.
//
// Each parameter is cut into as many equal parts as there are ranks, the last ones padded:
// PyTorch's fully_shard cuts along the first dimension, DeepSpeed's stage 3 anywhere. Rank r's
// parts of all parameters that are moved together lie together, one after the other: that is what a
// rank gathers from and reduces to. What is gathered, or to be scattered, is all ranks' parts, rank
// by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/workload/workload.h"

namespace bucketwise {

// A parameter among those that are moved together.
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

struct ShardedLayout {
    std::vector<ShardedParameter> parameters;
    std::int64_t part = 0;  // elements of one rank
    bool operator==(const ShardedLayout&) const = default;

    // Of a rank's part of a parameter, in what is gathered or to be scattered.
    [[nodiscard]] std::int64_t place(const ShardedParameter& of, std::int64_t rank) const {
        return rank * part + of.offset;
    }
};

enum class Cut : std::uint8_t {
    rows,     // along the first dimension, where that is known
    anywhere  // flattened
};

// Of these parameters, cut among so many ranks.
ShardedLayout layout_of(const std::vector<std::int32_t>& parameters,
                        const std::vector<Gradient>& gradients, std::int64_t ranks, Cut cut);

// The same, padded as among `ranks`, gathered among `fewer` of them, which divide these.
ShardedLayout among_fewer(ShardedLayout layout, std::int64_t ranks, std::int64_t fewer);

}  // namespace bucketwise
