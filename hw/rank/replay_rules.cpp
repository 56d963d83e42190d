#include "hw/rank/replay_rules.h"

#include "hw/compute/gradient_pattern.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

constexpr std::int64_t map_element_bytes = 4;

}  // namespace

DType wire_dtype(CommHook hook, DType dtype) {
    if (hook == CommHook::none || element_size(dtype) <= element_size(DType::float16)) {
        return dtype;
    }
    return hook == CommHook::bf16 ? DType::bfloat16 : DType::float16;
}

std::int64_t numel_of(const Bucket& bucket) {
    return bucket.size.count / element_size(bucket.dtype).count;
}

double ReplayRules::tolerance(DType dtype, std::int64_t accumulation) const {
    return rounding_tolerance(ranks_, accumulation, on_the_wire(dtype));
}

Movement movement_of(const Program& program, std::int32_t collective, const BucketPlan& plan,
                     const StatisticsMessages& statistics, const ReplayRules& rules) {
    const Collective& c = program.collectives[static_cast<std::size_t>(collective)];
    if (c.kind == CollectiveKind::broadcast) {
        // Broadcasts open a step, one per buffer group in order.
        return BufferBroadcast{collective, c.bytes};
    }
    if (c.statistics) {
        return statistics.of(collective);
    }
    invariant(c.kind == CollectiveKind::all_reduce, "buckets and the map are all-reduced");
    if (!c.bucket) {
        return UnusedMapSum{c.bytes.count / map_element_bytes};
    }
    const Bucket& bucket = plan.buckets[static_cast<std::size_t>(*c.bucket)];
    return BucketReduction{.bucket = *c.bucket,
                           .casts = rules.casts(bucket.dtype),
                           .dtype = rules.on_the_wire(bucket.dtype),
                           .elements = numel_of(bucket),
                           .averages = rules.collective_averages(bucket.dtype)};
}

}  // namespace bucketwise
