// Any bytes as an execution trace, messages or JSON, compressed or not: either InputError
// says what is wrong with them, or they give a scenario that can be simulated.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "import/chakra/chakra_trace.h"
#include "import/collectives/log_import.h"
#include "import/source/inflate.h"
#include "sim/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace bucketwise {
namespace {

void import_any(std::string_view text) {
    CollectiveLog log;
    try {
        log = read_chakra(inflated(source_of(text, text.size()), "trace"), "trace");
    } catch (const InputError&) {
        return;
    }
    // Where blocks end says nothing.
    require(read_chakra(inflated(source_of(text, 3), "trace"), "trace") == log);
    for (const bool asked : {false, true}) {
        LogImportRequest request{.ranks = 2};
        if (asked) {
            request.forward = request.backward = duration_from_ms(10);
        }
        try {
            LogImport imported = import_logs({log}, request);
            require(!imported.buckets.empty());
            const Scenario scenario = connect(imported, "eth-10g", no_file);
            require(!replay_text(imported, scenario).empty());
        } catch (const InputError&) {
            continue;
        }
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
