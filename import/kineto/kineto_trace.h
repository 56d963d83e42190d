// A trace of PyTorch's profiler (Kineto): Chrome trace events,
// https://github.com/pytorch/kineto (libkineto/src/output_json.cpp).
#pragma once

#include <string>

#include "import/source/byte_source.h"
#include "import/trace/trace.h"

namespace bucketwise {

// Reads one trace of any length and keeps the events that TraceEventKind names. Throws InputError
// for bytes that are no JSON or no trace, nesting of more than 100, and events that take more than
// most_trace_bytes.
ProfilerTrace read_kineto_trace(const ByteSource& source, const std::string& file);

}  // namespace bucketwise
