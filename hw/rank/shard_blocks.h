// The memory that a rank has for sharded steps, on whatever device.
#pragma once

#include <cstdint>

#include "hw/compute/memory_blocks.h"

namespace bucketwise {

template <typename Memory>
struct ShardBlocks {
    // By parameter: the rank's part, and all of it.
    MemoryBlocks<Memory> shards;
    MemoryBlocks<Memory> unsharded;
    // By move: of all ranks, and what micro-steps keep.
    MemoryBlocks<Memory> gathered;
    MemoryBlocks<Memory> reduced;
    MemoryBlocks<Memory> kept;

    [[nodiscard]] std::int64_t size_bytes() const {
        return shards.size_bytes() + unsharded.size_bytes() + gathered.size_bytes() +
               reduced.size_bytes() + kept.size_bytes();
    }
};

}  // namespace bucketwise
