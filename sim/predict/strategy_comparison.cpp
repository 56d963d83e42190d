#include "sim/predict/strategy_comparison.h"

#include <utility>

#include "sim/predict/prediction.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

std::int64_t updating_ranks(const Scenario& scenario) {
    return scenario.sharding ? shard_group_of(scenario).ranks : 1;
}

// A measured optimizer updates one of `before` parts before, and one of `after` parts after.
void scale_optimizer(std::int64_t before, std::int64_t after, Scenario& scenario) {
    if (auto* measured = std::get_if<Duration>(&scenario.step.optimizer)) {
        *measured = scaled(*measured, static_cast<double>(before) / static_cast<double>(after));
    }
}

std::optional<Framework> framework_of(ComparedStrategy strategy) {
    const int beyond = static_cast<int>(strategy) - static_cast<int>(ComparedStrategy::megatron_lm);
    return beyond < 0 ? std::nullopt
                      : std::optional(static_cast<Framework>(
                            static_cast<int>(Framework::megatron_lm) + beyond));
}

// Buckets of another strategy in place of shards or of a framework's buckets.
Scenario replicated(const Scenario& scenario, SyncRequest sync) {
    Scenario other = scenario;
    other.sharding.reset();
    other.sync = std::move(sync);
    scale_optimizer(updating_ranks(scenario), updating_ranks(other), other);
    return other;
}

}  // namespace

Scenario with_strategy(const Scenario& scenario, ComparedStrategy strategy) {
    if (const auto framework = framework_of(strategy)) {
        return !scenario.sharding && framework_of(scenario.sync.strategy) == framework
                   ? scenario
                   : replicated(scenario, used_as(scenario.sync, {.framework = *framework}));
    }
    if (strategy == ComparedStrategy::ddp) {
        return with_sharding(scenario, std::nullopt);
    }
    ShardingRequest request = scenario.sharding.value_or(ShardingRequest{});
    request.strategy = static_cast<ShardedStrategy>(static_cast<int>(strategy) - 1);
    if (request.strategy != ShardedStrategy::hsdp) {
        request.shard_ranks.reset();
    }
    request.reshard_ranks.reset();
    return with_sharding(scenario, request);
}

Scenario with_sharding(const Scenario& scenario, const std::optional<ShardingRequest>& request) {
    if (!request) {
        SyncRequest sync;
        sync.batch_norm = scenario.sync.batch_norm;
        return scenario.sharding || framework_of(scenario.sync.strategy)
                   ? replicated(scenario, std::move(sync))
                   : scenario;
    }
    Scenario other = scenario;
    other.sharding = request;
    check_shardable("scenario", other);
    other.sync = {};
    scale_optimizer(updating_ranks(scenario), updating_ranks(other), other);
    return other;
}

std::vector<StrategyRow> compare_strategies(const Scenario& scenario,
                                            const std::vector<ComparedStrategy>& strategies) {
    std::vector<StrategyRow> rows;
    for (const ComparedStrategy strategy : strategies) {
        const Scenario other = with_strategy(scenario, strategy);
        const auto quietly = [](double) {};
        const Prediction prediction = other.sharding
                                          ? predict_sharded(other, sharded_input(other), quietly)
                                          : predict(step_input(other), other.sync, {}, quietly);
        rows.push_back({strategy, prediction.advised()});
        if (!rows.back().best.memory) {
            rows.back().best.memory = memory_need(other);
        }
    }
    return rows;
}

}  // namespace bucketwise
