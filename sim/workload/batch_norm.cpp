#include "sim/workload/batch_norm.h"

#include "sim/base/invariant.h"

namespace bucketwise {

// gather: [mean C, inverse standard deviation C, count 1] of each rank. fused: [sum C, sum of
// squares C, count 1].
Exchange forward_exchange(BatchNormSync sync, std::int64_t channels) {
    invariant(sync != BatchNormSync::local, "local statistics are not exchanged");
    const std::int64_t values = 2 * channels + 1;
    if (sync == BatchNormSync::gather) {
        return {CollectiveKind::all_gather, values * element_size(DType::float32), DType::float32};
    }
    return {CollectiveKind::all_reduce, values * element_size(DType::float64), DType::float64};
}

// [sum dy C, sum dy (x - mean) C], scaled one way or the other.
Exchange backward_exchange(BatchNormSync sync, std::int64_t channels) {
    invariant(sync != BatchNormSync::local, "local statistics are not exchanged");
    return {CollectiveKind::all_reduce, 2 * channels * element_size(DType::float32),
            DType::float32};
}

}  // namespace bucketwise
