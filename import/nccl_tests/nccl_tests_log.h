// What nccl-tests or rccl-tests wrote: text as it stands in logs of all kinds, or the JSON of -J.
#pragma once

#include <string>

#include "import/nccl_tests/nccl_tests_run.h"
#include "import/source/byte_source.h"

namespace bucketwise {

// In memory that does not grow with the log but for its rows, of which there may be 100,000. Throws
// InputError, which names `file`.
NcclTestsLog read_nccl_tests_log(const ByteSource& source, const std::string& file);

}  // namespace bucketwise
