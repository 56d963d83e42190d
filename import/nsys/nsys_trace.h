// Exports of Nsight Systems (nsys export --type sqlite) as traces, one for each process that gave a
// GPU work. Tables and columns: "SQLite Schema Reference" of its user guide; they vary over
// versions, so that each column may be missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/nsys/export_database.h"
#include "import/trace/trace.h"

namespace bucketwise {

struct NsysRequest {
    std::string step_range = {};  // the name of ranges that mark steps; empty: those that look so
    // Bytes of each step's all-reduces, as issued, where neither ranges nor NCCL's payloads tell.
    std::vector<std::int64_t> all_reduce_bytes = {};
};

// By device, of those of one device as they were found. Throws InputError for what is no export or
// damaged, for more to keep than most_trace_bytes, and where nothing tells steps or sizes.
std::vector<ProfilerTrace> read_nsys_export(ExportDatabase& database, const NsysRequest& request);

}  // namespace bucketwise
