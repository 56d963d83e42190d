#include "sim/predict/preset_ends.h"

#include <algorithm>

#include "sim/base/json_input.h"
#include "sim/link/link_presets.h"
#include "sim/predict/what_if.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Scenario sharded(const Json& device, const char* link, const Json& workload = Json::object()) {
    Json document = Json::parse(R"({"name": "ends",
        "workload": {"model": {"family": "gpt2", "layers": 2, "hidden": 2048, "feed_forward": 8192,
                               "heads": 16, "vocabulary": 32000, "context": 1024},
                     "batch": 8, "sequence_length": 1024, "arithmetic": "bfloat16"},
        "cluster": {"ranks": 8},
        "sync": {"strategy": "fsdp", "sharding": {"parameter_dtype": "bfloat16"}},
        "step": {"optimizer": "sgd"}})");
    document["workload"]["device"] = device;
    document["workload"].update(workload);
    document["cluster"]["link"] = link;
    return parse_scenario(document, "test", {}, StrategyKinds::all);
}

Duration planned_step(const Scenario& scenario, const StepInput& input) {
    return PlannedStep(scenario, input, *scenario.sharding).simulate().times.step();
}

std::optional<StepRange> range_at(const Scenario& scenario) {
    const StepInput input = sharded_input(scenario).step;
    return step_range(scenario, input, planned_step(scenario, input), planned_step);
}

Json with_all_factors() {
    Json device{{"preset", "A100"}};
    for (const GpuFactor factor : every<GpuFactor>) {
        device[std::string(name_of(factor))] = range_of(factor).range[1];
    }
    return device;
}

TEST_CASE("a step lies within the range of its presets, which is narrower than all their ends") {
    const Scenario scenario = sharded("A100", "nvlink-a100-8");
    const Duration step = planned_step(scenario, sharded_input(scenario).step);
    const StepRange range = range_at(scenario).value();
    CHECK(range.low < step);
    CHECK(step < range.high);
    Scenario slow = scenario;
    std::get<ModelWorkload>(slow.workload).device->prior->end = PresetEnd::slow;
    const Duration slowest = planned_step(slow, sharded_input(slow).step);
    CHECK(range.high < slowest);
    // Most of what one factor alone does is left.
    CHECK(range.high - step > (slowest - step) / 3);
}

TEST_CASE("factors that are given have no range") {
    const Scenario known = sharded(with_all_factors(), "nvlink-a100-8");
    const Duration step = planned_step(known, sharded_input(known).step);
    CHECK(step == planned_step(sharded("A100", "nvlink-a100-8"),
                               sharded_input(sharded("A100", "nvlink-a100-8")).step));
    const StepRange of_link = range_at(known).value();
    const StepRange of_both = range_at(sharded("A100", "nvlink-a100-8")).value();
    CHECK(of_link.high <= of_both.high);
    CHECK(of_link.low >= of_both.low);
    CHECK(of_link.high >= step);
}

TEST_CASE("groups and replicas have each their part of a link's end") {
    Scenario scenario = sharded(with_all_factors(), "ib-hdr-200");
    scenario.group.ranks = 16;
    scenario.sharding->strategy = ShardedStrategy::hsdp;
    Scenario slow = scenario;
    slow.link = preset_end(*find_preset("ib-hdr-200"), PresetEnd::slow, scenario.link);
    slow.link.interference = sharded_input(scenario).step.link.interference;
    slow.link.assumes_interference = true;
    const StepRange range = range_at(scenario).value();
    CHECK(to_ms(range.high) ==
          Approx(to_ms(planned_step(slow, sharded_input(slow).step))).epsilon(1e-9));
    CHECK(range.low < planned_step(scenario, sharded_input(scenario).step));
}

TEST_CASE("an end has the thread blocks of the typical link") {
    const LinkPreset& preset = *find_preset("nvlink-a100-8");
    LinkParameters typical = preset_link(preset, PresetEnd::typical);
    typical.ctas = 8;
    CHECK(preset_end(preset, PresetEnd::slow, typical).ctas == 8);
}

TEST_CASE("where a scenario says how ranks differ, a prior adds nothing") {
    const auto forward = [](Scenario scenario, const std::optional<Variation>& variation) {
        scenario.variation = variation;
        return sharded_input(scenario).step.workload.forward.front().device;
    };
    const Scenario scenario = sharded("A100", "nvlink-a100-8");
    CHECK(forward(scenario, Variation{.rank_spread = 0.01}) < forward(scenario, {}));
    CHECK(forward(scenario, Variation{.compute_spread = 0.01}) == forward(scenario, {}));
    Scenario late = scenario;
    late.stragglers = {{.rank = 1, .compute_slowdown = 1.1}};
    CHECK(forward(late, {}) == forward(scenario, Variation{.rank_spread = 0.01}));
}

TEST_CASE("parameters that are gathered in 16 bits leave no autocast") {
    const Json written{{"dtype", "bfloat16"}};
    const Scenario gathered = sharded("A100", "nvlink-a100-8");
    const Scenario half = sharded("A100", "nvlink-a100-8", written);
    const auto forward = [](const Scenario& scenario) {
        std::vector<Duration> times;
        for (const TimedOperation& operation : sharded_input(scenario).step.workload.forward) {
            times.push_back(operation.device);
        }
        return times;
    };
    CHECK(forward(gathered) == forward(half));
}

}  // namespace
}  // namespace bucketwise
