// A sharded step that takes milliseconds, of shapes that nothing divides: every part is padded
// somewhere, and with four ranks one holds nothing of some parameters.
#pragma once

#include <cstdint>
#include <string>

#include "hw/measure/measurer.h"
#include "hw/rank/sharded_calls.h"
#include "sim/scenario/scenario.h"

namespace bucketwise::testing {

// Three layers and a root, in parameter order; backward goes the other way.
inline Scenario sharded_scenario(int ranks) {
    GradientWorkload workload;
    workload.forward = duration_from_ms(0.1);
    workload.backward = duration_from_ms(0.6);
    workload.device = device_preset("A100");  // without which an optimizer has no time
    const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t numel) {
        const double ready_ms = 0.6 - 0.04 * static_cast<double>(workload.gradients.size());
        workload.gradients.push_back(
            {{.name = name, .numel = numel, .dtype = DType::float32, .rows = rows},
             duration_from_ms(ready_ms)});
    };
    add("embed.weight", 7, 21);
    for (const std::string layer : {"layers.0.", "layers.1.", "layers.2."}) {
        add(layer + "weight", 5, 35);
        add(layer + "bias", 5, 5);
        add(layer + "scale", 1, 3);
    }
    add("head.weight", 0, 10);
    Scenario scenario;
    scenario.name = "sharded";
    scenario.workload = workload;
    scenario.group.ranks = ranks;
    scenario.link.segments.push_back({std::nullopt, Duration{0}, bandwidth_from_gb_per_s(1)});
    scenario.sharding = ShardingRequest{};
    scenario.step.optimizer = Optimizer::adam;
    return scenario;
}

inline ShardedReplay replay_of(const Scenario& scenario) {
    return sharded_replay(sharded_replay_input(scenario, *scenario.sharding, true));
}

}  // namespace bucketwise::testing
