#include "sim/report/sharding_text.h"

#include <fmt/format.h>

#include "sim/report/number_text.h"

namespace bucketwise {
namespace {

std::string groups_text(const ShardingRequest& request) {
    if (!request.groups.empty()) {
        return counted(std::ssize(request.groups), "group");
    }
    return request.layers_per_group == 0   ? "all in one"
           : request.layers_per_group == 1 ? "each layer"
                                           : fmt::format("{} layers", request.layers_per_group);
}

std::string reshard_text(const ShardingRequest& request) {
    if (request.reshard_ranks) {
        return fmt::format("to {} ranks", *request.reshard_ranks);
    }
    const bool root_alone = request.groups.empty() && request.layers_per_group == 0;
    return root_alone && !request.reshard_root ? "no"
           : request.reshard_root              ? "root too"
           : request.reshard_after_forward     ? "yes"
                                               : "no";
}

std::string prefetch_text(const ShardingRequest& request) {
    const std::string ahead =
        fmt::format("{} / {}", request.forward_prefetch, request.backward_prefetch);
    return request.asynchronous_unshard ? ahead + " async" : ahead;
}

std::string zero3_text(const Zero3Settings& zero3) {
    std::string text = fmt::format("stage3_prefetch_bucket_size {}, reduce_bucket_size {}",
                                   zero3.prefetch_elements, zero3.reduce_bucket_elements);
    if (zero3.max_reuse_distance != Zero3Settings{}.max_reuse_distance) {
        text += fmt::format(", stage3_max_reuse_distance {}", zero3.max_reuse_distance);
    }
    return text;
}

}  // namespace

std::string setting_label(const ShardingRequest& request) {
    if (request.strategy == ShardedStrategy::zero3) {
        return zero3_text(request.zero3);
    }
    std::string label = groups_text(request);
    label += request.reshard_ranks           ? ", to " + std::to_string(*request.reshard_ranks)
             : request.reshard_after_forward ? ""
                                             : ", kept";
    label += request.reshard_root ? ", root too" : "";
    if (request.forward_prefetch > 0 || request.backward_prefetch > 1) {
        label += fmt::format(", {}/{} ahead", request.forward_prefetch, request.backward_prefetch);
    }
    return request.asynchronous_unshard ? label + ", async" : label;
}

std::string setting_text(const ShardingRequest& request) {
    if (request.strategy == ShardedStrategy::zero3) {
        return zero3_text(request.zero3);
    }
    std::string text = !request.groups.empty()         ? groups_text(request)
                       : request.layers_per_group == 0 ? "everything in one group"
                       : request.layers_per_group == 1
                           ? "a group for each layer"
                           : fmt::format("a group for every {} layers", request.layers_per_group);
    const bool root_alone = request.groups.empty() && request.layers_per_group == 0;
    text += root_alone && !request.reshard_root ? ", kept after forward"
            : request.reshard_ranks ? fmt::format(", resharded to {} ranks", *request.reshard_ranks)
            : request.reshard_after_forward ? ", resharded after forward"
                                            : ", kept after forward";
    if (request.forward_prefetch > 0) {
        text += fmt::format(", {} ahead in forward", request.forward_prefetch);
    }
    if (request.backward_prefetch > 1) {
        text += fmt::format(", {} ahead in backward", request.backward_prefetch);
    }
    return request.asynchronous_unshard ? text + ", gathered asynchronously" : text;
}

std::vector<std::string> knob_headings(ShardedStrategy strategy) {
    if (strategy == ShardedStrategy::zero3) {
        return {"prefetch bucket", "reduce bucket", "reuse distance"};
    }
    return {"group", "reshard", "ahead, fwd/bwd"};
}

std::vector<std::string> knob_cells(const ShardingRequest& request) {
    if (request.strategy == ShardedStrategy::zero3) {
        return {fmt::to_string(request.zero3.prefetch_elements),
                fmt::to_string(request.zero3.reduce_bucket_elements),
                fmt::to_string(request.zero3.max_reuse_distance)};
    }
    return {groups_text(request), reshard_text(request), prefetch_text(request)};
}

std::string MemoryUnit::number(Bytes bytes) const {
    return three_digits(to_mib(bytes) / mib);
}

MemoryUnit unit_for(Bytes most) {
    constexpr double mib_per_gib = 1024;
    return to_mib(most) < mib_per_gib ? MemoryUnit{} : MemoryUnit{mib_per_gib, "GiB"};
}

std::string memory_text(Bytes bytes) {
    const MemoryUnit unit = unit_for(bytes);
    return unit.number(bytes) + " " + unit.name;
}

}  // namespace bucketwise
