// Memory that a collective receives into before it adds: kept between calls, so that only the first
// of a size pays for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bucketwise {

class Scratch {
  public:
    // Aligned for every dtype. What an earlier call returned is no longer valid if it was smaller.
    char* at_least(std::int64_t size) {
        if (size > size_) {
            memory_ = std::make_unique_for_overwrite<std::max_align_t[]>(
                static_cast<std::size_t>(size) / sizeof(std::max_align_t) + 1);
            size_ = size;
        }
        return reinterpret_cast<char*>(memory_.get());
    }

  private:
    std::unique_ptr<std::max_align_t[]> memory_;
    std::int64_t size_ = 0;
};

}  // namespace bucketwise
