// Any bytes as a database of Nsight Systems: either InputError says what is wrong with them, or
// they give a scenario that can be replayed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/nsys/export_database.h"
#include "import/nsys/nsys_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_import.h"
#include "sim/base/error.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

// libFuzzer's own abort would not say which.
void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

void check(const TraceImport& imported) {
    require(imported.ranks >= 1 && imported.step > Duration{0});
    for (const TracedAllReduce& all_reduce : imported.all_reduces) {
        for (const double us : all_reduce.wire_us) {
            require(us >= 0);
        }
    }
    Json document = imported.scenario;
    document["cluster"]["link"] = {
        {"name", "any"},
        {"algorithm", "ring"},
        {"segments", {{{"latency_us", 10}, {"bandwidth_gb_per_s", 10}}}}};
    const Scenario scenario =
        parse_scenario(document, "imported", [](const std::string&) { return std::string(); });
    const Replay replayed = replay(imported, scenario);
    require(replayed.step >= Duration{0} && !text_of(replayed).empty());
    require(!text_of(advise(imported, scenario, replayed)).empty());
}

void import_any(std::string_view bytes) {
    try {
        ExportDatabase database = ExportDatabase::of_bytes(bytes, "export");
        std::vector<TracedRank> ranks;
        for (const ProfilerTrace& trace : read_nsys_export(database, {})) {
            ranks.push_back(traced_rank(trace));
        }
        require(!ranks.empty());
        TraceImportRequest request;
        if (!ranks.front().world_size && ranks.size() == 1) {
            request.ranks = 2;
        }
        check(import_trace(ranks, request));
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
