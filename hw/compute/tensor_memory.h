// The memory of tensors on any device, and the one count of it: how many bytes are live, and how
// many were at most, as torch.cuda.max_memory_allocated() counts them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

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

// A block that counts while it lives. What it counts towards must outlive it.
class TensorMemory {
  public:
    TensorMemory() = default;
    TensorMemory(std::shared_ptr<std::byte> data, std::int64_t size_bytes, MemoryCount& count)
        : data_(std::move(data)), size_bytes_(size_bytes), count_(&count) {
        count.add(size_bytes);
    }
    ~TensorMemory() {
        if (count_ != nullptr) {
            count_->add(-size_bytes_);
        }
    }
    TensorMemory(TensorMemory&& other) noexcept { swap(other); }
    TensorMemory& operator=(TensorMemory&& other) noexcept {
        TensorMemory gone(std::move(*this));
        swap(other);
        return *this;
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
    void swap(TensorMemory& other) {
        std::swap(data_, other.data_);
        std::swap(size_bytes_, other.size_bytes_);
        std::swap(count_, other.count_);
    }

    std::shared_ptr<std::byte> data_;
    std::int64_t size_bytes_ = 0;
    MemoryCount* count_ = nullptr;
};

}  // namespace bucketwise
