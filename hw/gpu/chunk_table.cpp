#include "hw/gpu/chunk_table.h"

#include <algorithm>

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

ChunkTable::ChunkTable(const std::vector<TensorPlace>& tensors) {
    const std::vector<Chunk> chunks = chunks_of(tensors);
    memory_ = DeviceMemory::of(chunks);
    count_ = std::ssize(chunks);
}

std::vector<GradientsOfDType> tables_by_dtype(const std::vector<Gradient>& gradients,
                                              const std::vector<TensorPlace>& tensors) {
    std::vector<GradientsOfDType> tables;
    for (const DType dtype : every<DType>) {
        std::vector<TensorPlace> of_dtype;
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            if (gradients[i].dtype == dtype) {
                of_dtype.push_back(tensors[i]);
            }
        }
        if (!of_dtype.empty()) {
            tables.push_back({dtype, ChunkTable(of_dtype)});
        }
    }
    return tables;
}

}  // namespace bucketwise
