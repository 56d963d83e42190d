// A block of zeroed memory that starts on a cache line. Every page is touched when it is made, so
// that no access during a measurement faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace bucketwise {

class Arena {
  public:
    static constexpr std::int64_t alignment_bytes = 64;

    // Throws std::bad_alloc.
    explicit Arena(std::int64_t bytes = 0)
        : data_(static_cast<std::byte*>(
              ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{alignment_bytes}))),
          size_bytes_(bytes) {
        std::memset(data_.get(), 0, static_cast<std::size_t>(bytes));
    }

    [[nodiscard]] std::byte* at(std::int64_t offset) const { return data_.get() + offset; }
    [[nodiscard]] float* floats() { return reinterpret_cast<float*>(data_.get()); }
    [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }

  private:
    struct Deleter {
        void operator()(std::byte* data) const {
            ::operator delete (data, std::align_val_t{alignment_bytes});
        }
    };
    std::unique_ptr<std::byte, Deleter> data_;
    std::int64_t size_bytes_;
};

// A block that lives as long as a pointer to it.
inline std::shared_ptr<std::byte> shared_block(std::int64_t bytes) {
    const auto arena = std::make_shared<Arena>(bytes);
    return {arena, arena->at(0)};
}

}  // namespace bucketwise
