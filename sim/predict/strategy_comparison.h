// The step with several strategies: the fastest, and the fastest that fits.
#pragma once

#include <cstdint>
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

struct StrategyRow {
    ComparedStrategy strategy = ComparedStrategy::ddp;
    Evaluation best;  // with its memory
    bool operator==(const StrategyRow&) const = default;
};

// Each strategy with its best setting, in the order given. Groups listed in the scenario apply to
// all sharded strategies. optimizer_ms is that of the scenario's own strategy: a strategy that
// updates p times as much takes p times as long. Throws InputError as predict(), and for a strategy
// that is impossible on the scenario's ranks.
std::vector<StrategyRow> compare_strategies(const Scenario& scenario,
                                            const std::vector<ComparedStrategy>& strategies);

}  // namespace bucketwise
