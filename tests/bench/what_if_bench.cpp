// How many what-ifs a second: along a link's costs, along the number of ranks, and with the best
// cap of each; and a whole cap sweep of 100,000 ranks. Reports, asserts nothing.
//   build/release/tests/bench/bucketwise_bench --benchmark_filter='what_ifs|hundred_thousand'
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "cli/varied_values.h"
#include "sim/base/json_input.h"
#include "sim/link/link_input.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/predict/what_if.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

std::string shipped(const std::string& name) {
    return std::string(BUCKETWISE_SCENARIO_DIR) + "/" + name;
}

Json shipped_document(const std::string& name) {
    const std::string file = shipped(name);
    Json document = parse_json(read_text_file(file), file);
    inline_link(document, file, read_text_file);
    return document;
}

// Each thread has points of its own, as the command's have.
void what_ifs(benchmark::State& state, const std::string& scenario,
              const std::vector<std::string>& varied, const CapChoice& cap) {
    std::vector<VariedKey> keys;
    for (const std::string& text : varied) {
        keys.push_back(parse_varied_key(text));
    }
    const Grid grid(std::move(keys));
    WhatIfs evaluator(shipped_document(scenario), scenario, read_text_file, grid, cap);
    std::int64_t point = grid.points() / state.threads() * state.thread_index();
    for (auto _ : state) {
        benchmark::DoNotOptimize(evaluator.evaluate(point));
        point = (point + 1) % grid.points();
    }
    state.counters["what_ifs"] =
        benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
const std::vector<std::string> along_link{"/cluster/link/segments/2/latency_us=0.1..10:+0.1",
                                          "/cluster/link/segments/2/bandwidth_gb_per_s=1..1000:+1"};
const std::vector<std::string> along_ranks{"/cluster/ranks=2..1001:+1"};
const std::vector<std::string> along_batch{"/workload/batch=1..256:+1"};
BENCHMARK_CAPTURE(what_ifs, along_link, "resnet50_8xh100.json", along_link, CapChoice{})
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(what_ifs, along_ranks, "resnet50_8xh100.json", along_ranks, CapChoice{})
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(what_ifs, along_batch, "resnet50_8xh100.json", along_batch, CapChoice{})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(what_ifs, with_best_cap, "resnet50_8xh100.json", along_link,
                  CapChoice{.best = true})
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Every plan of the XL model on 100,000 ranks; with the intervals of what varies; and percentiles.
void hundred_thousand_ranks(benchmark::State& state, bool varies, std::int64_t draws) {
    const std::string file = shipped("cs336_xl_100k.json");
    for (auto _ : state) {
        Scenario scenario =
            parse_scenario(parse_json(read_text_file(file), file), file, read_text_file);
        if (!varies) {
            scenario.variation.reset();
        }
        const StepInput input = step_input(scenario);
        const Prediction prediction = predict(input, scenario.sync, {}, [](double) {});
        benchmark::DoNotOptimize(prediction.best);
        if (draws > 0) {
            benchmark::DoNotOptimize(percentile_table(input, scenario.sync, prediction, draws));
        }
    }
}
BENCHMARK_CAPTURE(hundred_thousand_ranks, every_plan, false, 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hundred_thousand_ranks, intervals, true, 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hundred_thousand_ranks, percentiles, true, 1000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace bucketwise
