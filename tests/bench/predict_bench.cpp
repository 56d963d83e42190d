// How fast predict answers: the engine's event rate, one plan, and whole sweeps. Reports, asserts
// nothing.
//   cmake --build --preset release && build/release/tests/bench/bucketwise_bench
#include <string>

#include <benchmark/benchmark.h>

#include "cli/shell/files.h"
#include "sim/base/json_input.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

Scenario load(const std::string& name) {
    const std::string path = std::string(BUCKETWISE_SCENARIO_DIR) + "/" + name;
    return parse_scenario(parse_json(read_text_file(path), path), path, read_text_file);
}

// The 435-tensor XL model under one cap.
Program step_program(bool interferes) {
    const Scenario scenario = load("cs336_xl.json");
    StepInput input = step_input(scenario);
    input.link.interference = constant_interference(
        interferes ? Interference{1'200'000, 1'300'000, std::chrono::microseconds{50}}
                   : Interference{});
    return Evaluator(input, scenario.sync).program(default_bucket_cap);
}

// Event by event. `interferes` forces every event through the queue.
void simulate_step(benchmark::State& state, bool interferes) {
    const Program program = step_program(interferes);
    std::uint64_t events = 0;
    for (auto _ : state) {
        const Simulation simulation = simulate({&program, 1}, Record::times_only);
        events += simulation.events;
        benchmark::DoNotOptimize(simulation.ranks.front());
    }
    state.counters["events"] =
        benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(simulate_step, without_interference, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(simulate_step, with_interference, true)->Unit(benchmark::kMicrosecond);

// The same step without a queue of events, as a sweep runs it.
void step_without_events(benchmark::State& state, bool interferes) {
    const Program program = step_program(interferes);
    for (auto _ : state) {
        benchmark::DoNotOptimize(simulate_times(program));
    }
}
BENCHMARK_CAPTURE(step_without_events, without_interference, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(step_without_events, with_interference, true)->Unit(benchmark::kMicrosecond);

// Many ranks one by one, each with its own compute stream.
void simulate_ranks(benchmark::State& state) {
    const Scenario scenario = load("resnet50_8xh100.json");
    const StepInput input = step_input(scenario);
    const std::vector<Program> ranks(static_cast<std::size_t>(state.range(0)),
                                     Evaluator(input, scenario.sync).program(std::nullopt));
    std::uint64_t events = 0;
    for (auto _ : state) {
        events += simulate(ranks, Record::times_only).events;
    }
    state.counters["events"] =
        benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(simulate_ranks)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

// Everything predict does but reading and writing files: parse, build the model, every distinct
// plan.
void sweep_every_plan(benchmark::State& state, const std::string& name) {
    std::size_t plans = 0;
    for (auto _ : state) {
        const Scenario scenario = load(name);
        const StepInput input = step_input(scenario);
        plans = predict(input, scenario.sync, {}, [](double) {}).sweep.size();
    }
    state.counters["plans"] = static_cast<double>(plans);
}
BENCHMARK_CAPTURE(sweep_every_plan, cs336_xl_435_tensors, "cs336_xl.json")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sweep_every_plan, resnet50, "resnet50_8xh100.json")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sweep_every_plan, gpt2_xl_580_tensors, "gpt2_xl_32xh100.json")
    ->Unit(benchmark::kMillisecond);

// The same with what to type into each framework, as the command prints it.
void advise(benchmark::State& state, const std::string& name) {
    for (auto _ : state) {
        const Scenario scenario = load(name);
        const StepInput input = step_input(scenario);
        const Prediction prediction = predict(input, scenario.sync, {}, [](double) {});
        benchmark::DoNotOptimize(framework_settings(input, scenario.sync, prediction));
    }
}
BENCHMARK_CAPTURE(advise, cs336_xl_435_tensors, "cs336_xl.json")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(advise, gpt2_xl_580_tensors, "gpt2_xl_32xh100.json")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace bucketwise
