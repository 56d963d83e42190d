// The bytes an importer reads: of a file, a decompressor or memory. They come in blocks, as a trace
// or a log may be larger than memory.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace bucketwise {

// Fills `buffer` with up to `size` bytes and returns how many; 0 only at the end. May throw
// InputError.
using ByteSource = std::function<std::size_t(char* buffer, std::size_t size)>;

// The first bytes of a source, and a source of all its bytes, these included.
struct Peeked {
    std::string begin;
    ByteSource all;
};

// Reads `count` bytes, fewer only where the source ends.
Peeked peeked(ByteSource source, std::size_t count);

// The same bytes, each block read by another thread while the one before is parsed. An exception of
// `source` is thrown here, after all bytes before it. The last copy waits for `source` to return,
// so the source must not block, as a pipe does.
ByteSource read_ahead(ByteSource source);

}  // namespace bucketwise
