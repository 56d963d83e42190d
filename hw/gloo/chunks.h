// How a buffer is cut into one chunk per rank.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bucketwise {

struct MessageChunk {
    std::int64_t first = 0;     // element
    std::int64_t elements = 0;  // the first `elements % ranks` chunks have one more than the others
};

constexpr MessageChunk chunk_of(std::int64_t elements, int ranks, int index) {
    const std::int64_t shared = elements / ranks;
    const std::int64_t larger = elements % ranks;
    return {index * shared + std::min<std::int64_t>(index, larger), shared + (index < larger)};
}

}  // namespace bucketwise
