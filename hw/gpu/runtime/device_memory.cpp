#include "hw/gpu/runtime/device_memory.h"

namespace bucketwise {
namespace {

constexpr std::int64_t word_bytes = 16;

std::byte* allocate(std::int64_t bytes) {
    if (bytes == 0) {
        return nullptr;
    }
    void* data = nullptr;
    const cudaError_t result = cudaMalloc(&data, static_cast<std::size_t>(bytes));
    if (result == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // the next launch would report it again
        throw std::bad_alloc();
    }
    check_gpu(result, "cudaMalloc");
    return static_cast<std::byte*>(data);
}

}  // namespace

DeviceMemory::DeviceMemory(std::int64_t bytes)
    : data_(allocate((bytes + word_bytes - 1) / word_bytes * word_bytes)), size_bytes_(bytes) {
    if (data_ != nullptr) {
        // Streams of ours do not wait for the default one, so it is waited for here.
        check_gpu(cudaMemset(data_.get(), 0, static_cast<std::size_t>(bytes)), "cudaMemset");
        check_gpu(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
}

void copy_to_device(void* to, const void* from, std::int64_t bytes, const CallPlace& place) {
    if (bytes > 0) {
        check_gpu(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice),
                  "cudaMemcpy", place);
        check_gpu(cudaDeviceSynchronize(), "cudaDeviceSynchronize", place);
    }
}

void copy_to_host(void* to, const void* from, std::int64_t bytes, const CallPlace& place) {
    if (bytes > 0) {
        check_gpu(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost),
                  "cudaMemcpy", place);
    }
}

HostFlag::HostFlag() {
    void* flag = nullptr;
    check_gpu(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocDefault), "cudaHostAlloc");
    flag_.reset(static_cast<int*>(flag));
    set(0);
}

}  // namespace bucketwise
