#include "hw/compute/sharded_layout.h"

#include <algorithm>

#include "sim/base/invariant.h"
#include "sim/sharding/shard_plan.h"

namespace bucketwise {

std::int64_t ShardedParameter::numel_of(std::int64_t rank) const {
    return std::clamp<std::int64_t>(numel - first_of(rank), 0, part);
}

ShardedLayout layout_of(const std::vector<std::int32_t>& parameters,
                        const std::vector<Gradient>& gradients, std::int64_t ranks, Cut cut) {
    ShardedLayout layout;
    for (const std::int32_t parameter : parameters) {
        Gradient of = gradients[static_cast<std::size_t>(parameter)];
        of.rows = cut == Cut::rows ? of.rows : 0;
        const std::int64_t part = padded_numel(of, ranks) / ranks;
        layout.parameters.push_back({parameter, of.numel, part, layout.part});
        layout.part += part;
    }
    return layout;
}

ShardedLayout among_fewer(ShardedLayout layout, std::int64_t ranks, std::int64_t fewer) {
    invariant(ranks % fewer == 0, "fewer ranks divide all");
    const std::int64_t times = ranks / fewer;
    layout.part *= times;
    for (ShardedParameter& of : layout.parameters) {
        of.part *= times;
        of.offset *= times;
    }
    return layout;
}

}  // namespace bucketwise
