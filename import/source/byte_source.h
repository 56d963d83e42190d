// Where an importer's bytes come from: a file, a decompressor, or memory. A block at a time, as a
// trace or a log may be larger than memory.
#pragma once

#include <cstddef>
#include <functional>

namespace bucketwise {

// Fills `buffer` with up to `size` bytes and returns how many; 0 only at the end. May throw
// InputError.
using ByteSource = std::function<std::size_t(char* buffer, std::size_t size)>;

}  // namespace bucketwise
