// A trace of PyTorch's profiler (Kineto): Chrome trace events,
// https://github.com/pytorch/kineto (libkineto/src/output_json.cpp).
#pragma once

#include <string>

#include "import/source/byte_source.h"
#include "import/trace/trace.h"

namespace bucketwise {

// Reads one trace, however long, keeping only what TraceEventKind names. Throws InputError for what
// is no JSON, no trace, nested more than 100 deep, or more to keep than most_trace_bytes.
ProfilerTrace read_kineto_trace(const ByteSource& source, const std::string& file);

}  // namespace bucketwise
