// One rank's gradients and buckets in memory.
//
// Every bucket lies in one block, bucket after bucket in launch order of the plan, its gradients
// side by side. Gradients either live there, as views, or in a block of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "hw/compute/tensor_memory.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class GradientBuffers {
  public:
    // Gradients are views of their buckets where `sync` copies them neither in nor back, or not
    // back (DDP's gradient_as_bucket_view), but not where a framework keeps them apart; one that
    // its bucket has in place is a view. A hook needs a second block of half the size. Buckets, and
    // gradients outside of them, start aligned. Throws std::bad_alloc.
    GradientBuffers(const std::vector<Gradient>& gradients, const SyncSettings& sync,
                    TensorSource& source);

    // Lays the buckets out for another plan of the same gradients. The old contents are lost.
    void arrange(const BucketPlan& plan);

    // Where backward writes it.
    [[nodiscard]] std::byte* gradient(std::int32_t index) const {
        return views_ || in_place_[at(index)] ? place_in_bucket(index)
                                              : own_.at(own_offset_[at(index)]);
    }
    // The same memory for views.
    [[nodiscard]] std::byte* place_in_bucket(std::int32_t gradient) const {
        return buckets_.at(place_[at(gradient)]);
    }
    [[nodiscard]] std::byte* bucket(std::int32_t index) const {
        return buckets_.at(bucket_[at(index)]);
    }
    // 16 bits an element.
    [[nodiscard]] std::byte* compressed(std::int32_t bucket) const {
        return compressed_.at(compressed_bucket_[at(bucket)]);
    }
    [[nodiscard]] std::byte* compressed_place(std::int32_t gradient) const {
        return compressed_.at(compressed_place_[at(gradient)]);
    }

    [[nodiscard]] std::array<const TensorMemory*, 3> blocks() const {
        return {&buckets_, &own_, &compressed_};
    }

  private:
    static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
    [[nodiscard]] std::int64_t aligned(std::int64_t offset) const;

    std::vector<Gradient> gradients_;
    std::int64_t alignment_bytes_;
    std::int64_t gradient_alignment_;  // within a bucket, in elements
    std::optional<DType> held_as_;     // buckets, if not as their gradients
    bool views_;
    std::vector<bool> in_place_;  // by gradient
    TensorMemory buckets_;
    TensorMemory own_;
    TensorMemory compressed_;
    // Offsets within these; of gradients but for compressed_bucket_ and bucket_.
    std::vector<std::int64_t> own_offset_;
    std::vector<std::int64_t> place_;
    std::vector<std::int64_t> bucket_;
    std::vector<std::int64_t> compressed_bucket_;
    std::vector<std::int64_t> compressed_place_;
};

}  // namespace bucketwise
