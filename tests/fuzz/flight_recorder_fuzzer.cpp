// Any bytes as a flight recorder's dump in JSON, compressed or not: either InputError
// says what is wrong with them, or they give a scenario that can be simulated.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "import/collectives/log_import.h"
#include "import/flight_recorder/flight_recorder.h"
#include "import/source/inflate.h"
#include "sim/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace bucketwise {
namespace {

void import_any(std::string_view text) {
    CollectiveLog log;
    try {
        log = read_flight_recorder(inflated(source_of(text, text.size()), "dump"), "dump");
    } catch (const InputError&) {
        return;
    }
    // Where blocks end says nothing.
    require(read_flight_recorder(inflated(source_of(text, 3), "dump"), "dump") == log);
    for (const bool timed : {false, true}) {
        try {
            LogImport imported = import_logs({log, log}, {.ranks = 2, .same_host = timed});
            require(!imported.buckets.empty());
            const Scenario scenario = connect(
                imported, timed ? std::nullopt : std::optional<std::string>("eth-10g"), no_file);
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
