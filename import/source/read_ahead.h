// A source read by a thread of its own, so that unpacking and parsing share two cores.
#pragma once

#include "import/source/byte_source.h"

namespace bucketwise {

// The bytes of `source`, up to 2 MiB ahead of what was asked for. What `source` throws is thrown
// here, after all bytes before it. With the last copy of the result the thread ends, as soon as
// `source` has returned: it should not wait for what may never come, as a pipe does.
ByteSource read_ahead(ByteSource source);

}  // namespace bucketwise
