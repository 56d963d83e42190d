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

// DistributedDataParallel, or one that shards.
enum class ComparedStrategy : std::uint8_t { ddp, fsdp, hsdp, zero3 };

template <>
inline constexpr auto names_of<ComparedStrategy> = names("ddp", "fsdp", "hsdp", "zero3");

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
// all sharded strategies. optimizer_ms is that of the scenario's own strategy: a strategy that
// updates p times as much takes p times as long. Throws InputError as predict(), and for a strategy
// that is impossible on the scenario's ranks.
std::vector<StrategyRow> compare_strategies(const Scenario& scenario,
                                            const std::vector<ComparedStrategy>& strategies);

}  // namespace bucketwise
