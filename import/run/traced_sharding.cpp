#include "import/run/traced_sharding.h"

#include <algorithm>
#include <string>

namespace bucketwise {

const TracedShardGroup* TracedSharding::group_of(std::int32_t module,
                                                 const TracedShards& shards) const {
    const std::string name =
        module == no_module ? "" : shards.modules[static_cast<std::size_t>(module)];
    const auto found = std::ranges::find(groups, name, &TracedShardGroup::modules);
    return found == groups.end() ? nullptr : &*found;
}

bool TracedSharding::has(const TracedCollective& collective) const {
    return collective.module != no_module &&
           (collective.gathers() || collective.scatters() ||
            (collective.name == "allreduce" && request.strategy == ShardedStrategy::hsdp));
}

Duration TracedSharding::on_link(const TracedStep& step, const TracedCollective& collective) const {
    std::size_t k = 0;
    for (const TracedCollective& one : step.collectives) {
        if (has(one) && &one == &collective) {
            return collectives[k].on_link;
        }
        k += has(one) ? 1U : 0U;
    }
    return Duration{0};
}

}  // namespace bucketwise
