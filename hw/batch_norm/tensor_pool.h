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
#include <utility>
#include <vector>

#include "hw/compute/tensor_memory.h"
#include "sim/base/invariant.h"

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
    TensorMemory tensor(std::int64_t count, std::size_t element_bytes) {
        invariant(count >= 0, "a tensor has a size");
        const std::int64_t bytes = count * static_cast<std::int64_t>(element_bytes);
        const std::int64_t whole = (bytes + block_bytes - 1) / block_bytes * block_bytes;
        if (whole == 0) {
            return {};
        }
        std::vector<std::shared_ptr<std::byte>>& spare = free_[whole];
        if (spare.empty()) {
            spare.push_back(source_(whole));
        }
        std::shared_ptr<std::byte> block = std::move(spare.back());
        spare.pop_back();  // whose place stays, so that giving back cannot fail
        std::byte* const start = block.get();
        const auto give_back = [&spare, block = std::move(block)](std::byte*) {
            spare.push_back(block);
        };
        return {std::shared_ptr<std::byte>(start, give_back), whole, count_};
    }

    Source source_;
    std::map<std::int64_t, std::vector<std::shared_ptr<std::byte>>> free_;  // by size
    MemoryCount count_;
};

}  // namespace bucketwise
