// Memory of tensors that come and go within a step, kept for the next step.
//
// It counts as PyTorch's caching allocator does, so that its peak can be put beside
// torch.cuda.max_memory_allocated(): every tensor is rounded up to whole blocks of 512 bytes, one
// without elements takes none, and a tensor counts from its making until it goes, whether its
// memory is new or was used before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "hw/compute/tensor_memory.h"

namespace bucketwise {

// Not thread-safe. Must outlive its tensors. Memory that a tensor gave back is handed out again at
// once: right where whatever uses it runs in the order in which it was issued, as on one stream.
class TensorPool {
  public:
    static constexpr std::int64_t block_bytes = 512;

    // Gives memory, aligned to 64 bytes or more, that lives as long as the pointer.
    using Source = std::function<std::shared_ptr<std::byte>(std::int64_t bytes)>;

    explicit TensorPool(Source source) : source_(std::move(source)) {}
    TensorPool(const TensorPool&) = delete;
    TensorPool& operator=(const TensorPool&) = delete;

    // What they hold is not defined. Throw what the source throws.
    [[nodiscard]] TensorMemory floats(std::int64_t count) { return tensor(count, sizeof(float)); }
    [[nodiscard]] TensorMemory doubles(std::int64_t count) { return tensor(count, sizeof(double)); }

    [[nodiscard]] MemoryCount& count() { return count_; }
    [[nodiscard]] const MemoryCount& count() const { return count_; }

  private:
    TensorMemory tensor(std::int64_t count, std::size_t element_bytes);

    Source source_;
    std::map<std::int64_t, std::vector<std::shared_ptr<std::byte>>> free_;  // by size
    MemoryCount count_;
};

}  // namespace bucketwise
