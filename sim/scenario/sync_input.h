// Reading the section sync of a scenario.
#pragma once

#include "sim/base/json_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The keys of every strategy.
const JsonTable<SyncRequest>& sync_table();

// The object `sharding` of a strategy.
JsonType<ShardingRequest> sharding_type(ShardedStrategy strategy);

// The keys of a scenario file, for its schema and reference.
const ObjectText& scenario_text();

// Precondition: the strategy keeps all parameters on every rank. Throws InputError.
SyncRequest read_sync(const JsonPlace& place);

// "2.4", "2.4.1" or "2.4+cu121". Throws InputError.
struct PytorchVersion {
    unsigned major = 0;
    unsigned minor = 0;
    auto operator<=>(const PytorchVersion&) const = default;
};
PytorchVersion read_pytorch_version(const JsonPlace& place);

}  // namespace bucketwise
