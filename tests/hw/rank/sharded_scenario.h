// A sharded step that takes milliseconds, of shapes that nothing divides: every part is padded
// somewhere, and with four ranks one holds nothing of some parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "hw/measure/measurer.h"
#include "hw/rank/rank_device.h"
#include "hw/rank/replayed_step.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

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

// As ranks on CPUs run it, or on GPUs.
inline ReplayedStep replay_of(const Scenario& scenario, bool on_host = true) {
    return sharded_replay(sharded_replay_input(scenario, *scenario.sharding, on_host));
}

inline std::string sharded_label(const Scenario& scenario) {
    const ShardingRequest& request = *scenario.sharding;
    return fmt::format(
        "{}, {} layers, reshard {}, root {}, async {}, ahead {}, {} in, {}, sync {}, all-reduce "
        "{}: ",
        name_of(request.strategy), request.layers_per_group, request.reshard_after_forward,
        request.reshard_root, request.asynchronous_unshard, request.forward_prefetch,
        scenario.step.accumulation, request.reduce_dtype ? "mixed" : "float32",
        name_of(request.gradient_sync), name_of(request.all_reduce));
}

// --- of all kinds ---

inline Scenario mixed(Scenario scenario) {
    scenario.sharding->parameter_dtype = DType::bfloat16;
    scenario.sharding->reduce_dtype = DType::float32;
    return scenario;
}

inline Scenario replicated(Scenario scenario, std::int64_t shard_ranks) {
    scenario.sharding->strategy = ShardedStrategy::hsdp;
    scenario.sharding->shard_ranks = shard_ranks;
    return scenario;
}

inline std::vector<Scenario> with_every_grouping(int ranks) {
    std::vector<Scenario> scenarios;
    for (const std::int64_t layers : {1, 2, 3, 0}) {
        for (const bool reshard : {true, false}) {
            Scenario scenario = sharded_scenario(ranks);
            scenario.sharding->layers_per_group = layers;
            scenario.sharding->reshard_after_forward = reshard;
            scenarios.push_back(scenario);
            scenarios.push_back(mixed(scenario));
        }
    }
    return scenarios;
}

// In each micro-step, or together in the last.
inline std::vector<Scenario> with_micro_steps(int ranks) {
    std::vector<Scenario> scenarios;
    for (const MicroSteps sync : every<MicroSteps>) {
        for (const bool reshard : {true, false}) {
            Scenario scenario = sharded_scenario(ranks);
            scenario.step.accumulation = 3;
            scenario.sharding->gradient_sync = sync;
            scenario.sharding->reshard_after_forward = reshard;
            scenario.sharding->reshard_after_backward = reshard;
            scenarios.push_back(scenario);
            scenarios.push_back(mixed(scenario));
        }
    }
    return scenarios;
}

inline std::vector<Scenario> with_prefetching(int ranks) {
    std::vector<Scenario> scenarios;
    for (const std::int64_t ahead : {0, 1, 2}) {
        for (const bool asynchronous : {true, false}) {
            Scenario scenario = sharded_scenario(ranks);
            scenario.sharding->asynchronous_unshard = asynchronous;
            scenario.sharding->forward_prefetch = ahead;
            scenario.sharding->backward_prefetch = ahead + 1;
            scenario.sharding->reshard_root = ahead == 1;
            scenario.step.accumulation = 2;
            scenarios.push_back(scenario);
            scenarios.push_back(mixed(scenario));
        }
    }
    return scenarios;
}

// Messages with equally many elements from each of that many ranks.
inline std::vector<Message> message_of_each_kind(std::int64_t ranks) {
    std::vector<Message> messages;
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
        messages.push_back({.size = {ranks * 1000 * 4}, .dtype = DType::float32, .kind = kind});
    }
    return messages;
}

// On four ranks.
inline std::vector<Scenario> with_replicas() {
    std::vector<Scenario> scenarios;
    for (const std::int64_t accumulation : {1, 3}) {
        for (const MicroSteps reduced : every<MicroSteps>) {
            for (const MicroSteps all_reduced : every<MicroSteps>) {
                Scenario scenario = replicated(sharded_scenario(4), 2);
                scenario.step.accumulation = accumulation;
                scenario.sharding->gradient_sync = reduced;
                scenario.sharding->all_reduce = all_reduced;
                scenario.sharding->asynchronous_unshard = accumulation == 3;
                scenarios.push_back(scenario);
                scenarios.push_back(mixed(scenario));
            }
        }
    }
    return scenarios;
}

// Backward gathers among two of four ranks.
inline std::vector<Scenario> with_fewer_ranks_in_backward() {
    std::vector<Scenario> scenarios;
    for (const std::int64_t accumulation : {1, 2}) {
        for (const std::int64_t layers : {1, 2, 0}) {
            Scenario scenario = sharded_scenario(4);
            scenario.step.accumulation = accumulation;
            scenario.sharding->layers_per_group = layers;
            scenario.sharding->reshard_ranks = 2;
            scenarios.push_back(scenario);
            scenarios.push_back(mixed(scenario));
        }
    }
    return scenarios;
}

// DeepSpeed: nothing, some and all is prefetched, and small enough to be kept.
inline std::vector<Scenario> with_stage_3(int ranks) {
    std::vector<Scenario> scenarios;
    for (const std::int64_t prefetch : {0, 40, 1000}) {
        for (const std::int64_t persistent : {0, 5, 1000}) {
            for (const std::int64_t accumulation : {1, 2}) {
                Scenario scenario = sharded_scenario(ranks);
                scenario.sharding->strategy = ShardedStrategy::zero3;
                scenario.sharding->zero3 = {.prefetch_elements = prefetch,
                                            .persistence_threshold = persistent,
                                            .max_reuse_distance = 30,
                                            .reduce_bucket_elements = 50};
                scenario.step.accumulation = accumulation;
                scenarios.push_back(scenario);
            }
        }
    }
    return scenarios;
}

// --- steps of them ---

// The errors after each of three steps, and all along another one; empty: none.
inline std::string wrong_in_steps(const ReplayedStep& replay, RankDevice& device) {
    std::string found;
    for (std::int64_t step = 0; step < 3; ++step) {
        device.run(replay, step, Communicate::yes);
        found += device.check().wrong;
    }
    return found + device.run_checked(replay, 3).wrong;
}

// By rank and scenario.
using WrongOfRanks = std::vector<std::vector<std::string>>;

inline void check_nothing_wrong(const std::vector<Scenario>& scenarios, const WrongOfRanks& wrong) {
    for (const std::vector<std::string>& of_rank : wrong) {
        REQUIRE(of_rank.size() == scenarios.size());
        for (std::size_t i = 0; i < scenarios.size(); ++i) {
            const std::string label = sharded_label(scenarios[i]);
            CHECK(label + of_rank[i] == label);
        }
    }
}

}  // namespace bucketwise::testing
