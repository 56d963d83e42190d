// Memory of the GPU, and memory of the host that the GPU copies to and from without a detour.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "hw/gpu/runtime/gpu_check.h"

namespace bucketwise {

// Copies between the host and the device, there when they return.
void copy_to_device(void* to, const void* from, std::int64_t bytes,
                    const CallPlace& place = CallPlace::current());
void copy_to_host(void* to, const void* from, std::int64_t bytes,
                  const CallPlace& place = CallPlace::current());

// Zeroed; on the current device. Padded to whole 16 bytes, which is what NCCL and our kernels
// read at a time. The host must not touch it but by copying.
class DeviceMemory {
  public:
    static constexpr std::int64_t alignment_bytes = 256;  // cudaMalloc's

    // Throws GpuError; std::bad_alloc when the device's memory does not suffice.
    explicit DeviceMemory(std::int64_t bytes = 0);

    // A copy of the values.
    template <typename T>
    [[nodiscard]] static DeviceMemory of(const std::vector<T>& values) {
        DeviceMemory memory(static_cast<std::int64_t>(values.size() * sizeof(T)));
        memory.write(values);
        return memory;
    }

    [[nodiscard]] std::byte* at(std::int64_t offset) const { return data_.get() + offset; }
    template <typename T>
    [[nodiscard]] T* as() const {
        return reinterpret_cast<T*>(data_.get());
    }
    [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }

    // From its beginning. Waits until it is there.
    template <typename T>
    void write(const std::vector<T>& values) const {
        copy_in(values.data(), 0, static_cast<std::int64_t>(values.size() * sizeof(T)));
    }
    void copy_in(const void* from, std::int64_t offset_bytes, std::int64_t bytes) const {
        copy_to_device(at(offset_bytes), from, bytes);
    }
    void copy_out(void* to, std::int64_t offset_bytes, std::int64_t bytes) const {
        copy_to_host(to, at(offset_bytes), bytes);
    }

  private:
    struct Deleter {
        void operator()(std::byte* data) const { cudaFree(data); }
    };
    std::unique_ptr<std::byte, Deleter> data_;
    std::int64_t size_bytes_;
};

// A block that lives as long as a pointer to it.
inline std::shared_ptr<std::byte> shared_device_block(std::int64_t bytes) {
    const auto memory = std::make_shared<DeviceMemory>(bytes);
    return {memory, memory->at(0)};
}

// A number that the host and the GPU both read and write.
class HostFlag {
  public:
    HostFlag();
    [[nodiscard]] volatile int* get() const { return flag_.get(); }
    [[nodiscard]] int value() const { return __atomic_load_n(flag_.get(), __ATOMIC_ACQUIRE); }
    void set(int value) { __atomic_store_n(flag_.get(), value, __ATOMIC_RELEASE); }

  private:
    struct Deleter {
        void operator()(int* flag) const { cudaFreeHost(flag); }
    };
    std::unique_ptr<int, Deleter> flag_;
};

}  // namespace bucketwise
