// The places of parts of parameters and gradients in the memory that a collective of a sharded step
// sends and receives, in elements.
//
// Each parameter is cut into as many equal parts as there are ranks, the last ones padded:
// PyTorch's fully_shard cuts along the first dimension, DeepSpeed's stage 3 anywhere. Rank r's
// parts of all parameters that move together lie together, one after the other: a rank gathers from
// them and reduces to them. The memory that is gathered, or to be scattered, holds all ranks'
// parts, rank by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/workload/workload.h"

namespace bucketwise {

// A parameter among those that move together.
struct ShardedParameter {
    std::int32_t parameter = 0;  // of Workload::gradients
    std::int64_t numel = 0;      // of all of it
    std::int64_t part = 0;       // of each rank's part, with what is padded
    std::int64_t offset = 0;     // of a part among a rank's
    bool operator==(const ShardedParameter&) const = default;

    // A rank's part: its beginning in the parameter, and its elements without padding.
    [[nodiscard]] std::int64_t first_of(std::int64_t rank) const { return rank * part; }
    [[nodiscard]] std::int64_t numel_of(std::int64_t rank) const;
};

struct ShardedLayout {
    std::vector<ShardedParameter> parameters;
    std::int64_t part = 0;  // elements of one rank
    bool operator==(const ShardedLayout&) const = default;

    // The place of a rank's part of a parameter among all ranks' parts.
    [[nodiscard]] std::int64_t place(const ShardedParameter& of, std::int64_t rank) const {
        return rank * part + of.offset;
    }
};

enum class Cut : std::uint8_t {
    rows,     // along the first dimension, where that is known
    anywhere  // flattened
};

// The layout of these parameters, cut among `ranks`.
ShardedLayout layout_of(const std::vector<std::int32_t>& parameters,
                        const std::vector<Gradient>& gradients, std::int64_t ranks, Cut cut);

// The same layout, padded as among `ranks`, gathered among `fewer` of them, a divisor.
ShardedLayout among_fewer(ShardedLayout layout, std::int64_t ranks, std::int64_t fewer);

}  // namespace bucketwise
