// The rules by which any device synchronises gradients: the division by the number of ranks, the
// dtype on the wire, and the error that rounding may leave.
#pragma once

#include <cstdint>

#include "hw/compute/gradient_pattern.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"

namespace bucketwise {

// The dtype of gradients on the wire: a hook casts dtypes wider than 16 bits.
inline DType wire_dtype(CommHook hook, DType dtype) {
    if (hook == CommHook::none || element_size(dtype) <= element_size(DType::float16)) {
        return dtype;
    }
    return hook == CommHook::bf16 ? DType::bfloat16 : DType::float16;
}

inline std::int64_t numel_of(const Bucket& bucket) {
    return bucket.size.count / element_size(bucket.dtype).count;
}

class ReplayRules {
  public:
    ReplayRules(const SyncSettings& sync, int ranks)
        : hook_(sync.comm_hook),
          copies_in_(sync.copies_in),
          packs_undivided_(sync.batched_copies),
          ranks_(ranks) {}

    [[nodiscard]] int ranks() const { return ranks_; }
    // Makes the sum over the ranks their mean.
    [[nodiscard]] double mean_factor() const { return 1.0 / ranks_; }

    // Whether a hook casts the dtype, and the dtype that then travels.
    [[nodiscard]] bool casts(DType dtype) const { return on_the_wire(dtype) != dtype; }
    [[nodiscard]] DType on_the_wire(DType dtype) const { return wire_dtype(hook_, dtype); }

    // Multiplies a gradient on its way into its bucket: DDP divides there, a hook when it casts.
    [[nodiscard]] double copy_in_factor(DType dtype) const {
        return casts(dtype) ? 1.0 : mean_factor();
    }
    // The same where a bucket's gradients are packed in one launch.
    [[nodiscard]] bool packs_undivided() const { return packs_undivided_; }
    [[nodiscard]] double pack_factor() const { return packs_undivided_ ? 1.0 : mean_factor(); }
    // Whether the all-reduce takes means, as nothing divides before it.
    [[nodiscard]] bool collective_averages(DType dtype) const {
        return !copies_in_ && !casts(dtype);
    }

    // The relative error that rounding may leave: see rounding_tolerance().
    [[nodiscard]] double tolerance(DType dtype, std::int64_t accumulation) const {
        return rounding_tolerance(ranks_, accumulation, on_the_wire(dtype));
    }

  private:
    CommHook hook_;
    bool copies_in_;
    bool packs_undivided_;
    int ranks_;
};

}  // namespace bucketwise
