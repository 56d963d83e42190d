// Any bytes as a profiler trace, compressed or not: either InputError says what is wrong with them,
// or they give a scenario that can be replayed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "import/kineto/kineto_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "import/source/inflate.h"
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

ByteSource source_of(std::string_view text, std::size_t block) {
    return [text, block](char* buffer, std::size_t size) mutable {
        const std::size_t count = std::min({text.size(), size, block});
        std::copy_n(text.data(), count, buffer);
        text.remove_prefix(count);
        return count;
    };
}

void check_replay(const TraceImport& imported, const Scenario& scenario) {
    const Replay replayed = replay(imported, scenario);
    require(replayed.step >= Duration{0} && !text_of(replayed).empty());
    require(!text_of(advise(imported, scenario, replayed)).empty());
}

void check(TraceImport imported) {
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
    check_replay(imported, scenario);
    // And on the link that the trace has, if it has one.
    check_replay(imported, connect(imported, {}, [](const std::string&) { return std::string(); }));
}

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
        check(import_trace({rank}, request));
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
