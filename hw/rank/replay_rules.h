// What a way to synchronise asks of a rank, on any device: who divides by the number of ranks, in
// which dtype gradients travel, what a collective moves, and how far from the exact mean rounding
// may leave a gradient.
#pragma once

#include <cstdint>
#include <variant>

#include "hw/batch_norm/statistics_messages.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

// What gradients of the dtype travel in: a hook casts what is wider than 16 bits.
DType wire_dtype(CommHook hook, DType dtype);

std::int64_t numel_of(const Bucket& bucket);

class ReplayRules {
  public:
    ReplayRules(const SyncSettings& sync, int ranks)
        : hook_(sync.comm_hook),
          copies_in_(sync.copies_in),
          packs_undivided_(sync.batched_copies),
          ranks_(ranks) {}

    [[nodiscard]] int ranks() const { return ranks_; }
    // What makes the sum over the ranks their mean.
    [[nodiscard]] double mean_factor() const { return 1.0 / ranks_; }

    // Whether gradients of the dtype, or a bucket of them, are cast, and what then travels.
    [[nodiscard]] bool casts(DType dtype) const { return on_the_wire(dtype) != dtype; }
    [[nodiscard]] DType on_the_wire(DType dtype) const { return wire_dtype(hook_, dtype); }

    // What a gradient is multiplied by on its way into its bucket: DDP divides there, a hook when
    // it casts.
    [[nodiscard]] double copy_in_factor(DType dtype) const {
        return casts(dtype) ? 1.0 : mean_factor();
    }
    // The same where a bucket's gradients are packed in one launch.
    [[nodiscard]] bool packs_undivided() const { return packs_undivided_; }
    [[nodiscard]] double pack_factor() const { return packs_undivided_ ? 1.0 : mean_factor(); }
    // Whether an all-reduce of the dtype is one of means, as nothing divides before it.
    [[nodiscard]] bool collective_averages(DType dtype) const {
        return !copies_in_ && !casts(dtype);
    }

    // How far off a gradient of the dtype may be, relative: see rounding_tolerance().
    [[nodiscard]] double tolerance(DType dtype, std::int64_t accumulation) const;

  private:
    CommHook hook_;
    bool copies_in_;
    bool packs_undivided_;
    int ranks_;
};

// What a collective of a step moves, in place.
struct BufferBroadcast {
    std::int32_t group = 0;  // of Workload::buffer_groups
    Bytes size;
    bool operator==(const BufferBroadcast&) const = default;
};
struct UnusedMapSum {
    std::int64_t elements = 0;  // float32, one per parameter
    bool operator==(const UnusedMapSum&) const = default;
};
struct BucketReduction {
    std::int32_t bucket = 0;
    bool casts = false;            // it travels as the hook has cast it
    DType dtype = DType::float32;  // of what travels
    std::int64_t elements = 0;
    bool averages = false;  // else sums
    bool operator==(const BucketReduction&) const = default;
};
using Movement = std::variant<BufferBroadcast, UnusedMapSum, BucketReduction, StatisticsExchange>;

// `collective`: of program.collectives. `plan` is what the program was built for, `statistics` were
// made for it.
Movement movement_of(const Program& program, std::int32_t collective, const BucketPlan& plan,
                     const StatisticsMessages& statistics, const ReplayRules& rules);

}  // namespace bucketwise
