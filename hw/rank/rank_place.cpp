#include "hw/rank/rank_place.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/base/invariant.h"

namespace bucketwise {

RankPlace rank_place(const Scenario& scenario, std::int64_t rank, std::int64_t ranks) {
    if (!scenario.sharding) {
        return {.replica = rank, .replicas = ranks};
    }
    invariant(ranks == scenario.group.ranks, "the scenario's ranks");
    const std::int64_t sharing = shard_group_of(scenario).ranks;
    return {.rank = rank % sharing,
            .ranks = sharing,
            .replica = rank / sharing,
            .replicas = ranks / sharing,
            .fewer = scenario.sharding->reshard_ranks.value_or(sharing)};
}

namespace {

void check_shard_ranks(const Scenario& scenario, const std::string& file) {
    const std::int64_t ranks = shard_group_of(scenario).ranks;
    if (ranks < 2) {
        const bool replicates = scenario.sharding->strategy == ShardedStrategy::hsdp;
        throw InputError(file, replicates ? "/sync/sharding/shard_ranks" : "/cluster/ranks",
                         "two ranks or more that share parameters, on real ranks",
                         std::to_string(ranks));
    }
    if (scenario.sharding->strategy == ShardedStrategy::zero3) {
        const std::vector<Gradient> parameters = step_input(scenario).workload.gradients;
        const auto other = std::ranges::find_if(
            parameters, [&](const Gradient& of) { return of.dtype != parameters.front().dtype; });
        if (other != parameters.end()) {
            throw InputError(file, "/workload",
                             "parameters of one dtype, as those of several modules are gathered "
                             "together on real ranks",
                             std::string(name_of(parameters.front().dtype)) + " and " +
                                 std::string(name_of(other->dtype)));
        }
    }
}

}  // namespace

void check_replayed(const Scenario& scenario, const std::string& file) {
    if (scenario.step.clip_gradients) {
        throw InputError(file, "/step/clip_gradients", "false, as real ranks do not clip",
                         "clipping");
    }
    if (scenario.step.one_hardware_queue) {
        throw InputError(file, "/step/one_hardware_queue",
                         "false, as real ranks have a queue for each stream", "true");
    }
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (workload != nullptr && is_float8(workload->arithmetic)) {
        throw InputError(file, "/workload/arithmetic",
                         "16 bits or more, as real ranks do not multiply in float8",
                         std::string(name_of(workload->arithmetic)));
    }
    if (scenario.sharding) {
        check_shard_ranks(scenario, file);
    }
}

}  // namespace bucketwise
