// Random models of an embedding, blocks and a head, sharded at random: small enough to be reckoned
// by other means, with costs that are whole picoseconds.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_step.h"

namespace bucketwise::testing {

// Ring collectives and copies at 1 GB/s: a byte takes 1,000 ps.
inline StepInput random_blocks(std::mt19937& random) {
    const auto between = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    StepInput input;
    Workload& workload = input.workload;
    const auto add_parameter = [&](const std::string& name) {
        const std::int64_t rows = between(1, 40);
        workload.gradients.push_back({name, rows * between(1, 30), DType::float32, false, rows});
    };
    const auto add_operations = [&](const std::string& module) {
        const auto time = [&] { return Duration{between(0, 1) * between(0, 9'000'000)}; };
        for (std::int64_t i = between(1, 3); i > 0; --i) {
            const auto index = static_cast<std::int32_t>(workload.gradients.size());
            add_parameter(module + ".linear" + std::to_string(i) + ".weight");
            workload.forward.push_back({.name = module + ".linear" + std::to_string(i),
                                        .device = time(),
                                        .host = Duration{between(0, 400'000)}});
            workload.backward.insert(workload.backward.begin(),
                                     {.name = workload.forward.back().name + " backward",
                                      .device = time(),
                                      .host = Duration{between(0, 400'000)},
                                      .ready_count = 1});
            workload.readiness.insert(workload.readiness.begin(), index);
        }
    };
    // Backward computes a block again before the block's own operations, forward's order within.
    const auto recompute_since = [&](std::size_t first) {
        for (std::size_t i = workload.forward.size(); i-- > first;) {
            TimedOperation again = workload.forward[i];
            again.name += " recomputed";
            workload.backward.insert(workload.backward.begin(), std::move(again));
        }
    };
    const bool recomputes = between(0, 1) == 0;
    add_operations("embedding");
    for (std::int64_t i = 0, blocks = between(1, 12); i < blocks; ++i) {
        const std::size_t first = workload.forward.size();
        add_operations("layers." + std::to_string(i));
        if (recomputes && between(0, 2) > 0) {
            recompute_since(first);
        }
    }
    add_operations("head");
    input.group.ranks = between(2, 6);
    input.link.segments = {
        {std::nullopt, Duration{between(0, 3) * 1'000'000}, bandwidth_from_gb_per_s(1)}};
    input.link.launch = Duration{between(0, 2'000'000)};
    input.link.host_issue = Duration{between(0, 500'000)};
    input.link.host_wait = Duration{between(0, 200'000)};
    if (between(0, 2) > 0) {
        input.copy_bandwidth = bandwidth_from_gb_per_s(1);
        input.copy_fixed = Duration{between(0, 500'000)};
        workload.copy_launch = Duration{between(0, 500'000)};
    }
    input.step.optimizer = Duration{between(0, 5'000'000)};
    input.step.accumulation = between(1, 3);
    return input;
}

inline ShardingRequest random_sharding(std::mt19937& random) {
    const auto between = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    ShardingRequest request;
    request.layers_per_group = between(0, 4);
    request.reshard_after_forward = between(0, 2) > 0;
    request.reshard_root = between(0, 2) == 0;
    request.forward_prefetch = between(0, 2);
    request.backward_prefetch = between(1, 3);
    request.asynchronous_unshard = between(0, 3) == 0;
    if (between(0, 1) == 0) {
        request.parameter_dtype = DType::bfloat16;
    }
    if (between(0, 1) == 0) {
        request.reduce_dtype = between(0, 1) == 0 ? DType::float32 : DType::bfloat16;
    }
    request.reduces_in_own_dtype = between(0, 1) == 0;
    request.reduce_scatter_buffers = between(1, 3);
    request.gradient_sync = static_cast<MicroSteps>(between(0, 1));
    request.reshard_after_backward = between(0, 2) > 0;
    return request;
}

}  // namespace bucketwise::testing
