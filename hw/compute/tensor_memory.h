// The memory of tensors on any device, and the one count of it: how many bytes are live, and how
// many were at most, as torch.cuda.max_memory_allocated() counts them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"

namespace bucketwise {

struct MemoryCount {
    std::int64_t current = 0;
    std::int64_t peak = 0;

    void add(std::int64_t bytes) {
        current += bytes;
        peak = std::max(peak, current);
    }
    void restart_peak() { peak = current; }
};

// A block that counts while it, or a copy that shares it, lives. The count must outlive it.
class TensorMemory {
  public:
    TensorMemory() = default;
    TensorMemory(const std::shared_ptr<std::byte>& data, std::int64_t size_bytes,
                 MemoryCount& count)
        : data_(data.get(), [data, size_bytes, &count](std::byte*) { count.add(-size_bytes); }),
          size_bytes_(size_bytes) {
        count.add(size_bytes);
    }

    [[nodiscard]] std::byte* at(std::int64_t offset_bytes) const {
        return data_.get() + offset_bytes;
    }
    // Null when it is empty.
    template <typename T>
    [[nodiscard]] T* as() const {
        return reinterpret_cast<T*>(data_.get());
    }
    [[nodiscard]] float* floats() const { return as<float>(); }
    [[nodiscard]] double* doubles() const { return as<double>(); }
    [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }

  private:
    std::shared_ptr<std::byte> data_;
    std::int64_t size_bytes_ = 0;
};

// The memory of a device. Must outlive its tensors, and stay in its place.
struct TensorSource {
    // Zeroed, and lives as long as the pointer. Throws std::bad_alloc.
    std::function<std::shared_ptr<std::byte>(std::int64_t bytes)> make;
    std::int64_t alignment_bytes = 64;  // of every tensor
    MemoryCount count = {};

    [[nodiscard]] TensorMemory tensor(std::int64_t bytes) { return {make(bytes), bytes, count}; }
};

// Not thread-safe. Must outlive its tensors. Memory that a tensor gave back is handed out again at
// once, so users must run in the order of their calls, as on one stream.
class TensorPool {
  public:
    static constexpr std::int64_t block_bytes = 512;

    // Gives memory, aligned to 64 bytes or more, that lives as long as the pointer.
    using Source = std::function<std::shared_ptr<std::byte>(std::int64_t bytes)>;

    explicit TensorPool(Source source) : source_(std::move(source)) {}
    TensorPool(const TensorPool&) = delete;
    TensorPool& operator=(const TensorPool&) = delete;

    // Contents are undefined. Throw as the source throws.
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
