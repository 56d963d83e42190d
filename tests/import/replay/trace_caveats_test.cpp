#include "import/replay/replay.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "import/replay/trace_advice.h"
#include "import/replay/trace_link.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/imported_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

// The written scenario, read again.
Scenario written(TraceImport& imported) {
    const Scenario connected = connect(imported, {}, no_file);
    state_caveats(replay(imported, connected), imported);
    return parse_scenario(imported.scenario, "written", no_file);
}

bool has(const std::vector<Caveat>& caveats, const std::string& part) {
    return std::ranges::any_of(caveats,
                               [&](const Caveat& caveat) { return contains(caveat.text, part); });
}

}  // namespace

TEST_CASE("a replay is a caveat from 2 % off, and withholds advice from 10 %", "[caveats]") {
    const auto off = [](double ms) {
        return replay_caveat(duration_from_ms(ms), duration_from_ms(100), "the trace");
    };
    CHECK_FALSE(off(100));
    CHECK_FALSE(off(101.9));
    CHECK_FALSE(off(98.1));
    CHECK(off(103) ==
          Caveat{.text = "the trace replays 3.0 % off: 103.000 ms per step for 100.000 ms"});
    CHECK_FALSE(off(90.1)->withholds);
    CHECK(off(70) ==
          Caveat{.text = "the trace replays 30.0 % off: 70.000 ms per step for 100.000 ms",
                 .withholds = true});
    CHECK(off(111)->withholds);
}

TEST_CASE("what an import assumed is in the scenario, and in its link what weakens that",
          "[caveats]") {
    TraceShape shape;
    shape.distributed_info = shape.collective_args = false;
    shape.list_shapes = true;  // the all-reduces' sizes, without their groups'
    TraceImport imported = import_of(shape);
    const Scenario scenario = written(imported);
    CHECK(has(scenario.caveats, "ranks: 2, as nothing tells"));
    // Kernels of 10 us beside all-reduces cost no hundredth of a step.
    CHECK_FALSE(has(scenario.caveats, "undisturbed: "));
    CHECK_FALSE(has(scenario.caveats, "profiler"));  // of every trace
    CHECK(has(scenario.link.caveats, "of 2 ranks one was traced"));
    CHECK(has(scenario.link.caveats, "only 2 different sizes"));
    CHECK(std::ranges::none_of(scenario.caveats, &Caveat::withholds));
}

TEST_CASE("what overlapping is assumed to cost is in a scenario of which it is a hundredth",
          "[caveats]") {
    TraceShape shape;
    shape.host_us = 6;
    shape.kernel_us = 1000;
    shape.wire_us = 2000;  // the first all-reduce runs beside two kernels of nine
    TraceImport imported = import_of(shape);
    CHECK(has(written(imported).caveats, "by what is assumed of GPUs"));
}

TEST_CASE("few steps, and steps that differ, are in the scenario", "[caveats]") {
    TraceShape shape;
    shape.steps = 2;
    TraceImport two = import_of(shape);
    CHECK(has(written(two).caveats, "steps: only two were traced"));
    shape.steps = 3;
    TraceImport three = import_of(shape);
    CHECK_FALSE(has(written(three).caveats, "steps:"));
    three.summary.longest = three.summary.shortest + three.summary.step / 4;
    CHECK(has(written(three).caveats, "steps: those traced differ"));
}

TEST_CASE("all-reduces of one size tell no latency, which their link says", "[caveats]") {
    TraceShape shape;
    shape.bucket_ends = {4};
    TraceImport imported = import_of(shape);
    // 501,500 elements of 4 bytes.
    CHECK(has(written(imported).link.caveats, "all-reduces were all of 2006000 bytes"));
}

TEST_CASE("the link of one rank is a placeholder by which nothing is advised", "[caveats]") {
    TraceShape shape;
    shape.ranks = 1;
    TraceImport imported = import_of(shape);
    const Scenario scenario = written(imported);
    REQUIRE(scenario.link.caveats.size() == 1);
    CHECK(scenario.link.caveats.front().withholds);
    CHECK(contains(reasons_to_withhold(scenario).front(), "link none: a placeholder"));
}

TEST_CASE("savings are not simulated of a step that replays far off", "[caveats]") {
    TraceImport imported = import_of({});
    const Scenario scenario = connect(imported, {}, no_file);
    Replay replayed = replay(imported, scenario);
    CHECK(advise(imported, scenario, replayed).withheld.empty());
    CHECK_FALSE(advise(imported, scenario, replayed).savings.empty());
    replayed.traced.step = 2 * replayed.step;
    const TraceAdvice advice = advise(imported, scenario, replayed);
    CHECK(advice.savings.empty());
    CHECK(contains(text_of(advice), "advice is withheld: the trace replays 50.0 % off"));
}

}  // namespace bucketwise
