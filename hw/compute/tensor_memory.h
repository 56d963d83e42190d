// The memory of tensors on any device, and the one count of it: how many bytes are live, and how
// many were at most, as torch.cuda.max_memory_allocated() counts them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

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

// A block that counts while it, or a copy that shares it, lives. What it counts towards must
// outlive it.
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

}  // namespace bucketwise
