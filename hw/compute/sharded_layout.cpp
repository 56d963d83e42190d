#include "hw/compute/sharded_layout.h"

#include <algorithm>

#include "sim/base/invariant.h"

namespace bucketwise {

std::int64_t ShardedParameter::numel_of(std::int64_t rank) const {
    return std::clamp<std::int64_t>(numel - first_of(rank), 0, part);
}

std::vector<ShardedGroupLayout> layout_of(const ShardPlan& plan,
                                          const std::vector<Gradient>& gradients) {
    std::vector<ShardedGroupLayout> layouts;
    for (const ShardGroup& group : plan.groups) {
        ShardedGroupLayout& layout = layouts.emplace_back();
        for (const std::int32_t parameter : group.parameters) {
            const Gradient& of = gradients[static_cast<std::size_t>(parameter)];
            const std::int64_t part = padded_numel(of, plan.ranks) / plan.ranks;
            layout.parameters.push_back({parameter, of.numel, part, layout.part});
            layout.part += part;
        }
        invariant(layout.part * plan.ranks == group.padded_numel, "a group is its parameters");
    }
    return layouts;
}

}  // namespace bucketwise
