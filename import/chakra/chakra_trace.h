// Chakra execution traces (MLCommons) as what they say of communication.
#pragma once

#include <string>

#include "import/collectives/collective_log.h"
#include "import/source/byte_source.h"

namespace bucketwise {

// The messages of et_def.proto (.et: each with its length before it, first GlobalMetadata, then
// Nodes), the same as JSON (chakra_jsonizer), or what PyTorch's ExecutionTraceObserver writes,
// whose steps its optimizer's ends. Collectives are in the order of what they depend on, else of
// their numbers.
//
// Where nodes that compute have durations, a collective is issued when all that it depends on was
// computed, one after another. Throws InputError, which names `file`, for what is none of these,
// for damaged or endless input, for dependencies in a circle, and where nothing communicates.
CollectiveLog read_chakra(ByteSource source, const std::string& file);

}  // namespace bucketwise
