// The step with several strategies: the fastest, and the fastest that fits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/names.h"
#include "sim/predict/evaluation.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

// DistributedDataParallel, one that shards, or a framework's own.
enum class ComparedStrategy : std::uint8_t {
    ddp,
    fsdp,
    hsdp,
    zero3,
    // In the order of Framework.
    megatron_lm,
    megatron_distributed_optimizer,
    deepspeed_zero1,
    deepspeed_zero2,
    horovod
};

template <>
inline constexpr auto names_of<ComparedStrategy> = names("ddp", "fsdp", "hsdp", "zero3",
                                                         "megatron_lm",
                                                         "megatron_distributed_optimizer",
                                                         "deepspeed_zero1", "deepspeed_zero2",
                                                         "horovod");

// The scenario with another strategy, at the defaults of settings that only that one has;
// optimizer_ms is that of the scenario's own strategy: one that updates p times as much takes p
// times as long. Throws InputError for a strategy that is impossible.
Scenario with_strategy(const Scenario& scenario, ComparedStrategy strategy);

struct StrategyRow {
    ComparedStrategy strategy = ComparedStrategy::ddp;
    Evaluation best;  // with its memory
    bool operator==(const StrategyRow&) const = default;
};

// The scenario with its parameters sharded so, or, without a request, with DistributedDataParallel
// instead. A measured optimizer takes the part of its time that the new shards need. Throws
// InputError where that is impossible on the scenario's ranks.
Scenario with_sharding(const Scenario& scenario, const std::optional<ShardingRequest>& request);

// Each strategy with its best setting, in the order given. Groups listed in the scenario apply to
// all sharded strategies. Throws InputError as predict() and with_strategy().
std::vector<StrategyRow> compare_strategies(const Scenario& scenario,
                                            const std::vector<ComparedStrategy>& strategies);

}  // namespace bucketwise
