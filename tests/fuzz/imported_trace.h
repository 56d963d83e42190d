// What holds of every imported trace, whatever profiler it is of.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "sim/scenario/scenario.h"
#include "tests/fuzz/fuzz.h"

namespace bucketwise {

inline void check_replay(const TraceImport& imported, const Scenario& scenario) {
    const Replay replayed = replay(imported, scenario);
    require(replayed.step >= Duration{0} && !text_of(replayed).empty());
    require(!text_of(advise(imported, scenario, replayed)).empty());
}

inline void check_import(TraceImport imported) {
    require(imported.ranks >= 1 && imported.step > Duration{0});
    for (const TracedAllReduce& all_reduce : imported.all_reduces) {
        for (const double us : all_reduce.wire_us) {
            require(us >= 0);
        }
    }
    require(!comparison_text(imported.summary, "before", imported.summary, "after").empty());
    const auto no_file = [](const std::string&) { return std::string(); };
    Json document = imported.scenario;
    document["cluster"]["link"] = {
        {"name", "any"},
        {"algorithm", "ring"},
        {"segments", {{{"latency_us", 10}, {"bandwidth_gb_per_s", 10}}}}};
    check_replay(imported, parse_scenario(document, "imported", no_file));
    // And on the link that the trace has, if it has one.
    check_replay(imported, connect(imported, {}, no_file));
}

}  // namespace bucketwise
