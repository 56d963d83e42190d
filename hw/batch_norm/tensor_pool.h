// Memory of tensors that come and go within a step, kept for the next step, and the count of what
// is live.
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

    class Tensor {
      public:
        Tensor() = default;
        Tensor(Tensor&& other) noexcept { swap(other); }
        Tensor& operator=(Tensor&& other) noexcept {
            Tensor gone(std::move(*this));
            swap(other);
            return *this;
        }
        Tensor(const Tensor&) = delete;
        Tensor& operator=(const Tensor&) = delete;
        ~Tensor();

        // Null when it has no elements.
        [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(memory_.get()); }
        [[nodiscard]] double* doubles() const { return reinterpret_cast<double*>(memory_.get()); }

      private:
        friend class TensorPool;
        Tensor(TensorPool& pool, std::int64_t bytes);
        void swap(Tensor& other) noexcept {
            std::swap(pool_, other.pool_);
            std::swap(bytes_, other.bytes_);
            std::swap(memory_, other.memory_);
        }

        TensorPool* pool_ = nullptr;
        std::int64_t bytes_ = 0;  // whole blocks
        std::shared_ptr<std::byte> memory_;
    };

    // What they hold is not defined. Throw what the source throws.
    [[nodiscard]] Tensor floats(std::int64_t count);
    [[nodiscard]] Tensor doubles(std::int64_t count);

    [[nodiscard]] std::int64_t live_bytes() const { return live_bytes_; }
    // The most that was live at once since the last restart_peak().
    [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_; }
    void restart_peak() { peak_bytes_ = live_bytes_; }

  private:
    Source source_;
    std::map<std::int64_t, std::vector<std::shared_ptr<std::byte>>> free_;  // by size
    std::int64_t live_bytes_ = 0;
    std::int64_t peak_bytes_ = 0;
};

}  // namespace bucketwise
