#include <algorithm>

#include "hw/nccl/kernels.h"

namespace bucketwise {

std::vector<Chunk> chunks_of(const std::vector<TensorPlace>& tensors) {
    std::vector<Chunk> chunks;
    for (const TensorPlace& tensor : tensors) {
        for (std::int64_t begin = 0; begin < tensor.numel; begin += chunk_elements) {
            chunks.push_back({.tensor = tensor.tensor,
                              .place = tensor.place,
                              .begin = begin,
                              .count = std::min(chunk_elements, tensor.numel - begin),
                              .tensor_index = tensor.tensor_index});
        }
    }
    return chunks;
}

}  // namespace bucketwise
