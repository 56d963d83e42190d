// Dumps of PyTorch's flight recorder: the last collectives that a rank issued, as a ring buffer
// keeps them (TORCH_FR_BUFFER_SIZE, once TORCH_NCCL_TRACE_BUFFER_SIZE).
#pragma once

#include <string>

#include "import/collectives/collective_log.h"
#include "import/source/byte_source.h"

namespace bucketwise {

// Reads JSON of versions 1 (a list of entries) and 2. PyTorch writes a pickle, which
// pickle_to_json.py turns into that: on a timeout, and from _dump_fr_trace() and
// _dump_nccl_trace(). Throws InputError, which names `file`, for damaged input and where there is
// no collective.
CollectiveLog read_flight_recorder(ByteSource source, const std::string& file);

}  // namespace bucketwise
