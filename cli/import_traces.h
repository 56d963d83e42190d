// Profilers' traces, read from files with a line of progress.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/file_kind.h"
#include "import/nsys/nsys_trace.h"
#include "import/run/traced_run.h"

namespace bucketwise {

// The rank that a trace of PyTorch's profiler shows. Throws InputError.
TracedRank read_kineto_file(const std::string& file);

// The ranks of an export of Nsight Systems. Throws InputError.
std::vector<TracedRank> read_nsys_file(const std::string& file, const NsysRequest& request);

// The ranks of a file of either kind, told by its content.
std::vector<TracedRank> read_trace_file(const std::string& file, FileKind kind);

}  // namespace bucketwise
