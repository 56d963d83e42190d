// Random steps of random gradients, every strategy that communicates, ring links: small enough to
// be reckoned by other means.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

struct RandomStep {
    StepInput input;
    SyncSettings sync;
    BucketPlan plan;
    std::vector<GradientReadiness> gradients;
    double launch_us = 0;
    double latency_us = 0;
    double gb_per_s = 0;
};

inline RandomStep random_step(std::mt19937& random) {
    const auto microseconds = [](std::int64_t count) -> Duration {
        return std::chrono::microseconds{count};
    };
    const auto between = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    RandomStep step;
    const Duration backward = microseconds(between(1, 10'000));
    for (std::int64_t i = between(1, 40); i > 0; --i) {
        step.gradients.push_back(
            {{"g" + std::to_string(i), between(1, 1 << 20), DType::float32, false},
             Duration{between(0, backward.count())}});
    }
    step.input.workload =
        workload_from_readiness(step.gradients, microseconds(between(0, 1000)), backward);
    step.input.group = {between(1, 64), 1};
    step.launch_us = static_cast<double>(between(0, 50));
    step.latency_us = static_cast<double>(between(0, 100));
    step.gb_per_s = static_cast<double>(between(1, 100)) / 10;
    step.input.link.launch = duration_from_us(step.launch_us);
    step.input.link.segments = {
        {std::nullopt, duration_from_us(step.latency_us), bandwidth_from_gb_per_s(step.gb_per_s)}};
    SyncRequest request;
    request.strategy = every<Strategy>[static_cast<std::size_t>(between(1, 8))];
    request.bucket_cap = Bytes{between(1, 32 << 20)};
    step.sync = settings_for(request);
    step.plan =
        make_plan(step.input.workload.gradients, step.input.workload.readiness, step.sync.policy);
    return step;
}

}  // namespace bucketwise
