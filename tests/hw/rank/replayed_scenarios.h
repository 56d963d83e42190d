// Small scenarios, and what replaying each on some ranks leaves, on any kind of device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hw/measure/measurer.h"
#include "hw/rank/rank_device.h"
#include "sim/engine/bucket_planner.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/hw/rank/small_scenario.h"

namespace bucketwise::testing {

// A step of a scenario, as every rank replays it.
struct ReplayedScenario {
    explicit ReplayedScenario(Scenario replayed)
        : scenario(std::move(replayed)),
          input(replay_input(scenario)),
          step(replayed_step(scenario, input, scenario.sync.bucket_cap, plan_of)) {}

    Scenario scenario;
    StepInput input;
    ReplayedStep step;
};

struct Replayed {
    std::string wrong;
    double largest_difference = 0;
    std::vector<StepTrace> traces;
};

// Three steps, each checked: gradients of one step must not survive into the next.
inline Replayed three_steps(const ReplayedScenario& replayed, RankDevice& device) {
    Replayed result;
    for (std::int64_t step = 0; step < 3; ++step) {
        result.traces.push_back(device.run(replayed.step, step, Communicate::yes));
        const StepCheck check = device.check();
        result.wrong += check.wrong;
        result.largest_difference = std::max(result.largest_difference, check.largest_difference);
    }
    return result;
}

inline std::string label_of(const Scenario& scenario) {
    return std::string(name_of(scenario.sync.strategy)) + ", hook " +
           std::string(name_of(scenario.sync.comm_hook)) + ", views " +
           std::to_string(scenario.sync.views) + ", graph " +
           std::to_string(scenario.step.cuda_graph) + ", accumulation " +
           std::to_string(scenario.step.accumulation) + ": ";
}

// `results`: by rank, of each scenario.
inline void check_all_right(const std::vector<Scenario>& scenarios,
                            const std::vector<std::vector<Replayed>>& results) {
    for (const std::vector<Replayed>& of_rank : results) {
        REQUIRE(of_rank.size() == scenarios.size());
        for (std::size_t i = 0; i < scenarios.size(); ++i) {
            CHECK(label_of(scenarios[i]) + of_rank[i].wrong == label_of(scenarios[i]));
        }
    }
}

inline ModelWorkload& model_of_test(Scenario& scenario) {
    return std::get<ModelWorkload>(scenario.workload);
}

inline std::vector<Scenario> with_every_strategy(int ranks) {
    std::vector<Scenario> scenarios;
    for (const Strategy strategy : every<Strategy>) {
        if (strategy != Strategy::none) {
            scenarios.push_back(small_scenario(ranks));
            scenarios.back().sync.strategy = strategy;
        }
    }
    return scenarios;
}

inline std::vector<Scenario> with_every_way_of_ddp(int ranks) {
    std::vector<Scenario> scenarios;
    for (const bool views : {false, true}) {
        for (const CommHook hook : {CommHook::none, CommHook::fp16, CommHook::bf16}) {
            for (const std::int64_t accumulation : {1, 3}) {
                Scenario& scenario = scenarios.emplace_back(small_scenario(ranks));
                scenario.sync.views = views;
                scenario.sync.comm_hook = hook;
                scenario.sync.find_unused_parameters = views;
                scenario.sync.fused_copies = accumulation == 3;
                scenario.step.accumulation = accumulation;
                scenario.step.optimizer = Optimizer::adam;
            }
        }
    }
    return scenarios;
}

// Floats and counters are broadcast apart, then four or more buckets.
inline Scenario with_batch_normalisation(int ranks) {
    Scenario scenario = small_scenario(ranks);
    model_of_test(scenario).model = "resnet18";
    model_of_test(scenario).input = {.batch = 1, .image_size = 32};
    scenario.sync.bucket_cap = Bytes{8 * bytes_per_mib};
    return scenario;
}
constexpr std::size_t fewest_collectives_of_batch_normalisation = 6;

// Both exchanges of BatchNorm's statistics, in each of two micro-steps.
inline std::vector<Scenario> with_exchanged_statistics(int ranks) {
    std::vector<Scenario> scenarios;
    for (const BatchNormSync sync : {BatchNormSync::gather, BatchNormSync::fused}) {
        Scenario& scenario = scenarios.emplace_back(with_batch_normalisation(ranks));
        scenario.sync.batch_norm = sync;
        scenario.step.accumulation = 2;
    }
    return scenarios;
}

// Gradients with nothing but their readiness.
inline Scenario with_gradients_only(int ranks) {
    Scenario scenario = small_scenario(ranks);
    GradientWorkload workload;
    workload.forward = duration_from_ms(0.1);
    workload.backward = duration_from_ms(0.5);
    for (int i = 0; i < 5; ++i) {
        workload.gradients.push_back({{.name = "g" + std::to_string(i),
                                       .numel = 1 + 3000 * i,
                                       .dtype = i == 3 ? DType::float64 : DType::float32},
                                      duration_from_ms(0.1 * i)});
    }
    scenario.workload = workload;
    scenario.step.optimizer = duration_from_ms(0.1);
    return scenario;
}

}  // namespace bucketwise::testing
