// Dumps of PyTorch's flight recorder: the last collectives that a rank issued, as a ring buffer
// keeps them (TORCH_FR_BUFFER_SIZE, once TORCH_NCCL_TRACE_BUFFER_SIZE).
#pragma once

#include <string>

#include "import/collectives/collective_log.h"
#include "import/source/byte_source.h"

namespace bucketwise {

// A pickle, as a watchdog writes it on a timeout or _dump_fr_trace() and _dump_nccl_trace() return
// it, or JSON of the same, of versions 1 (a list of entries) and 2. Throws InputError, which names
// `file`, for what is neither, for damaged or endless input, and where there is no collective.
CollectiveLog read_flight_recorder(ByteSource source, const std::string& file);

}  // namespace bucketwise
