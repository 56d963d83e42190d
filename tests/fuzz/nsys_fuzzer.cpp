// Any bytes as a database of Nsight Systems: either InputError says what is wrong with them, or
// they give a scenario that can be replayed.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "import/nsys/nsys_trace.h"
#include "import/replay/trace_import.h"
#include "sim/base/error.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/imported_trace.h"
#include "tests/import/nsys/opened_export.h"

namespace bucketwise {
namespace {

void import_any(std::string_view bytes) {
    try {
        ExportDatabase database = opened_export(bytes, "export");
        std::vector<TracedRank> ranks;
        for (const ProfilerTrace& trace : read_nsys_export(database, {})) {
            ranks.push_back(traced_rank(trace));
        }
        require(!ranks.empty());
        TraceImportRequest request;
        if (!ranks.front().world_size && ranks.size() == 1) {
            request.ranks = 2;
        }
        check_import(import_trace(ranks, request), bytes.size());
    } catch (const InputError&) {
        return;
    }
}

}  // namespace
}  // namespace bucketwise

// libFuzzer knows this function by its name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // libFuzzer speaks of bytes, the importer of characters.
    bucketwise::import_any({reinterpret_cast<const char*>(data), size});
    return 0;
}
