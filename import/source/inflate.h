// Compressed files, read as if they were plain.
#pragma once

#include <string>

#include "import/source/byte_source.h"

namespace bucketwise {

// The bytes of `source`, decompressed if they begin as a gzip file does (RFC 1952), of one member
// or several; else unchanged. A byte-order mark before text is left out. Throws InputError for
// damaged or torn compression, and for a file that unfolds to hundreds of times its size: traces
// compress to a thirtieth. `file` is for messages only.
ByteSource inflated(ByteSource source, const std::string& file);

}  // namespace bucketwise
