// How ranks share BatchNorm's statistics, and the collectives of that: for the simulator and for
// real ranks.
#pragma once

#include <cstdint>

#include "sim/base/dtype.h"
#include "sim/base/invariant.h"
#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/collective.h"

namespace bucketwise {

// How BatchNorm gets its statistics, in forward and in backward.
enum class BatchNormSync : std::uint8_t {
    local,   // each rank's own, without communication
    gather,  // of all ranks, as PyTorch's SyncBatchNorm: an all-gather, an all-reduce in backward
    fused    // of all ranks: one all-reduce of sums each way
};

template <>
inline constexpr auto names_of<BatchNormSync> = names("local", "gather", "fused");

enum class BatchNormPasses : std::uint8_t { forward, both };

template <>
inline constexpr auto names_of<BatchNormPasses> = names("forward", "both");

// A collective that every rank waits for before it goes on.
struct Exchange {
    CollectiveKind kind = CollectiveKind::all_reduce;
    Bytes own;  // each rank's part
    DType dtype = DType::float32;
    bool operator==(const Exchange&) const = default;

    // The collective's whole buffer, as sim/link/collective.h counts.
    [[nodiscard]] Bytes buffer(std::int64_t ranks) const {
        return kind == CollectiveKind::all_gather ? ranks * own : own;
    }
};

// The exchange of a layer with so many channels, for every dtype: statistics are float32, or
// float64 where sums of squares travel. Precondition (asserted): not local.

// gather: [mean C, inverse standard deviation C, count 1] of each rank. fused: [sum C, sum of
// squares C, count 1].
inline Exchange forward_exchange(BatchNormSync sync, std::int64_t channels) {
    invariant(sync != BatchNormSync::local, "local statistics are not exchanged");
    const std::int64_t values = 2 * channels + 1;
    if (sync == BatchNormSync::gather) {
        return {CollectiveKind::all_gather, values * element_size(DType::float32), DType::float32};
    }
    return {CollectiveKind::all_reduce, values * element_size(DType::float64), DType::float64};
}

// [sum dy C, sum dy (x - mean) C], scaled one way or the other.
inline Exchange backward_exchange(BatchNormSync sync, std::int64_t channels) {
    invariant(sync != BatchNormSync::local, "local statistics are not exchanged");
    return {CollectiveKind::all_reduce, 2 * channels * element_size(DType::float32),
            DType::float32};
}

}  // namespace bucketwise
