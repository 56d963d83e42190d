// Tensors and their companions, cut into the chunks that our kernels go over, on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/gpu/kernels/kernels.h"
#include "hw/gpu/runtime/device_memory.h"
#include "sim/base/dtype.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Tensor after tensor.
std::vector<Chunk> chunks_of(const std::vector<TensorPlace>& tensors);

class ChunkTable {
  public:
    ChunkTable() = default;
    explicit ChunkTable(const std::vector<TensorPlace>& tensors);

    [[nodiscard]] const Chunk* data() const { return memory_.as<Chunk>(); }
    [[nodiscard]] std::int64_t count() const { return count_; }
    [[nodiscard]] std::int64_t size_bytes() const { return memory_.size_bytes(); }

  private:
    DeviceMemory memory_;
    std::int64_t count_ = 0;
};

// Gradients of one dtype: what one launch of a kernel can go over.
struct GradientsOfDType {
    DType dtype = DType::float32;
    ChunkTable chunks;
};

// One table for each dtype that a gradient has. `tensors`: by gradient.
std::vector<GradientsOfDType> tables_by_dtype(const std::vector<Gradient>& gradients,
                                              const std::vector<TensorPlace>& tensors);

}  // namespace bucketwise
