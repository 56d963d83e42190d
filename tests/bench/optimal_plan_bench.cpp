// How fast the optimal plan is found: the exact search alone, and with all that is compared with
// it. Reports, asserts nothing.
#include <string>

#include <benchmark/benchmark.h>

#include "cli/shell/files.h"
#include "sim/base/json_input.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/optimum/max_plus_plan.h"
#include "sim/optimum/optimal_plan.h"
#include "sim/plan/gradient_line.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

Scenario load(const std::string& name, Strategy strategy) {
    const std::string path = std::string(BUCKETWISE_SCENARIO_DIR) + "/" + name;
    Scenario scenario =
        parse_scenario(parse_json(read_text_file(path), path), path, read_text_file);
    scenario.sync.strategy = strategy;
    return scenario;
}

// From nothing known, not even a plan to beat.
void exact_optimum(benchmark::State& state, const std::string& name) {
    const Scenario scenario = load(name, Strategy::ddp);
    const StepInput input = step_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    for (auto _ : state) {
        const GradientLine line(input.workload.gradients, input.workload.readiness, sync.policy);
        const StepBeforeClosing before(input, sync);
        const StepToClose step(before);
        MaxPlusPlanner planner(input, sync, line, before.loop(), step.progress().front());
        benchmark::DoNotOptimize(planner.best_below(longest_duration, [](double) {}));
    }
}
BENCHMARK_CAPTURE(exact_optimum, resnet50_161_gradients, "resnet50_8xh100.json")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(exact_optimum, cs336_xl_435_gradients, "cs336_xl.json")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(exact_optimum, gpt2_xl_580_gradients, "gpt2_xl_32xh100.json")
    ->Unit(benchmark::kMillisecond);

// The default, every cap, greedy merge, lists of two and the optimum.
void compared_optimum(benchmark::State& state, const std::string& name, Strategy strategy) {
    const Scenario scenario = load(name, strategy);
    const StepInput input = step_input(scenario);
    for (auto _ : state) {
        benchmark::DoNotOptimize(optimal_plan(input, scenario.sync, [](double) {}));
    }
}
BENCHMARK_CAPTURE(compared_optimum, resnet50, "resnet50_8xh100.json", Strategy::ddp)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compared_optimum, cs336_xl, "cs336_xl.json", Strategy::ddp)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compared_optimum, cs336_xl_in_any_order, "cs336_xl.json", Strategy::bucketed)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compared_optimum, with_interference, "transformer_small.json", Strategy::ddp)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace bucketwise
