// The JSON that nccl-tests writes with -J: one document per run.
#pragma once

#include <string>

#include "import/nccl_tests/nccl_tests_run.h"

namespace bucketwise {

// Adds the runs of `text`, one document after another, of which the last may be cut off, to a log
// whose `file` is set. Of a document only what is named here is looked at; its `env` never is.
// Throws InputError for what is no JSON of nccl-tests.
void read_nccl_tests_json(const std::string& text, NcclTestsLog& log);

// "2.29.2" of 22902, NCCL's number of its version; of two digits less before 2.9.
std::string nccl_version_text(std::int64_t code);

}  // namespace bucketwise
