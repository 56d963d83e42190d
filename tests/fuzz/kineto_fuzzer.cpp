// Any bytes as a profiler trace, compressed or not: either InputError says what is wrong with them,
// or they give a scenario that can be replayed.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "import/kineto/kineto_trace.h"
#include "import/replay/trace_import.h"
#include "import/source/inflate.h"
#include "sim/base/error.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/imported_trace.h"

namespace bucketwise {
namespace {

void import_any(std::string_view text) {
    try {
        const TracedRank rank = traced_rank(
            read_kineto_trace(inflated(source_of(text, text.size()), "trace"), "trace"));
        // Where blocks end says nothing.
        require(traced_rank(read_kineto_trace(inflated(source_of(text, 5), "trace"), "trace")) ==
                rank);
        TraceImportRequest request;
        if (!rank.world_size) {
            request.ranks = 2;
        }
        check_import(import_trace({rank}, request), text.size());
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
