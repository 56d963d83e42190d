// Numbers of any floating-point format in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tests/hw/compute/number_format.h"

namespace bucketwise::testing {

inline void check_cuda(cudaError_t error) {
    if (error != cudaSuccess) {
        throw std::runtime_error(cudaGetErrorName(error));
    }
}

class DeviceNumbers {
  public:
    DeviceNumbers(NumberFormat format, const std::vector<double>& values, cudaStream_t stream)
        : format_(format), count_(values.size()), stream_(stream) {
        std::vector<char> bytes(count_ * size());
        for (std::size_t i = 0; i < count_; ++i) {
            // Little-endian: the lower bytes come first.
            const std::uint64_t bits = encoded(format, values[i]);
            std::memcpy(bytes.data() + i * size(), &bits, size());
        }
        check_cuda(cudaMalloc(&memory_, bytes.size()));
        check_cuda(
            cudaMemcpyAsync(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_));
    }
    ~DeviceNumbers() { cudaFree(memory_); }
    DeviceNumbers(const DeviceNumbers&) = delete;
    DeviceNumbers& operator=(const DeviceNumbers&) = delete;

    [[nodiscard]] void* get() const { return memory_; }

    [[nodiscard]] std::vector<double> values() const {
        std::vector<char> bytes(count_ * size());
        check_cuda(
            cudaMemcpyAsync(bytes.data(), memory_, bytes.size(), cudaMemcpyDeviceToHost, stream_));
        std::vector<double> result;
        for (std::size_t i = 0; i < count_; ++i) {
            std::uint64_t bits = 0;
            std::memcpy(&bits, bytes.data() + i * size(), size());
            result.push_back(static_cast<double>(decoded(format_, bits)));
        }
        return result;
    }

  private:
    [[nodiscard]] std::size_t size() const {
        return static_cast<std::size_t>(1 + format_.exponent_bits + format_.mantissa_bits) / 8;
    }

    NumberFormat format_;
    std::size_t count_;
    cudaStream_t stream_;
    void* memory_ = nullptr;
};

}  // namespace bucketwise::testing
