// Device memory and pinned host memory.
#pragma once

#include <cstddef>

namespace bucketwise::emulated {

enum class MemoryKind { pageable, pinned, device };

// Whether [pointer, pointer + bytes) is within one allocation of that kind that is live. Everything
// is pageable that is neither of the other two; a range that only begins in pinned or device memory
// is of no kind.
bool is_memory(MemoryKind kind, const void* pointer, std::size_t bytes);

}  // namespace bucketwise::emulated
