// Properties of every imported trace, from any profiler.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "sim/scenario/scenario.h"
#include "tests/fuzz/fuzz.h"

namespace bucketwise {

inline void check_replay(const TraceImport& imported, const Scenario& scenario, bool advises) {
    const Replay replayed = replay(imported, scenario);
    require(replayed.step >= Duration{0} && !text_of(replayed).empty());
    if (advises) {
        require(!text_of(advise(imported, scenario, replayed)).empty());
    }
}

// Checks some inputs, chosen by size, more thoroughly than reading them takes.
inline void check_import(TraceImport imported, std::size_t bytes) {
    const bool advises = bytes % 16 == 0;
    require(imported.ranks >= 1 && imported.summary.step > Duration{0});
    for (const TypicalCollective& all_reduce : imported.all_reduces) {
        for (const double us : all_reduce.wire_us) {
            require(us >= 0);
        }
    }
    require(!comparison_text(imported.summary, imported.summary).empty());
    const auto no_file = [](const std::string&) { return std::string(); };
    Json document = imported.scenario;
    document["cluster"]["link"] = {
        {"name", "any"},
        {"algorithm", "ring"},
        {"segments", {{{"latency_us", 10}, {"bandwidth_gb_per_s", 10}}}}};
    check_replay(imported, parse_scenario(document, "imported", no_file, StrategyKinds::all),
                 advises);
    // And on the link that the trace has, if it has one.
    const Scenario connected = connect(imported, {}, no_file);
    check_replay(imported, connected, advises);
    // And as it is written, with what is known to be weak.
    state_caveats(replay(imported, connected), imported);
    require(parse_scenario(imported.scenario, "written", no_file, StrategyKinds::all).link ==
            connected.link);
}

}  // namespace bucketwise
