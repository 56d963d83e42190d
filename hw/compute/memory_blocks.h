// Blocks of memory whose sizes change: one after the other, or all in one place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

enum class BlockPlacing : std::uint8_t { apart, together };

// Memory: Arena, or the like of another device.
template <typename Memory>
class MemoryBlocks {
  public:
    // Throws std::bad_alloc. What they held is lost.
    void arrange(const std::vector<Bytes>& sizes, BlockPlacing placing = BlockPlacing::apart) {
        offsets_.clear();
        std::int64_t end = 0;
        for (const Bytes size : sizes) {
            const std::int64_t offset = placing == BlockPlacing::apart ? end : 0;
            offsets_.push_back(offset);
            end = std::max(end, aligned_to(offset + size.count));
        }
        if (memory_.size_bytes() < end) {
            memory_ = Memory();  // never two at once
            memory_ = Memory(end);
        }
    }

    [[nodiscard]] std::byte* at(std::int32_t block) const {
        return memory_.at(offsets_[static_cast<std::size_t>(block)]);
    }
    [[nodiscard]] std::int64_t size_bytes() const { return memory_.size_bytes(); }

  private:
    static std::int64_t aligned_to(std::int64_t offset) {
        return (offset + Memory::alignment_bytes - 1) / Memory::alignment_bytes *
               Memory::alignment_bytes;
    }

    Memory memory_;
    std::vector<std::int64_t> offsets_;
};

}  // namespace bucketwise
