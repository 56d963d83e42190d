// Where one rank's gradients and buckets lie in memory, in bytes, whatever the memory is.
//
// Every bucket lies in one block, bucket after bucket in launch order of the plan, its gradients
// side by side. Gradients either live there, as views, or in a block of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class GradientLayout {
  public:
    // Gradients are views of their buckets where `sync` copies them neither in nor back, or not
    // back (DDP's gradient_as_bucket_view). A hook needs a second block of half the size. Buckets,
    // and gradients outside of them, start at multiples of `alignment_bytes`.
    GradientLayout(const std::vector<Gradient>& gradients, const SyncSettings& sync,
                   std::int64_t alignment_bytes);

    // Lays the buckets out for another plan of the same gradients.
    void arrange(const BucketPlan& plan);

    [[nodiscard]] bool gradients_are_views() const { return views_; }

    // Sizes of the blocks; the same for every plan.
    [[nodiscard]] std::int64_t buckets_bytes() const { return buckets_bytes_; }
    [[nodiscard]] std::int64_t own_bytes() const { return own_bytes_; }
    [[nodiscard]] std::int64_t compressed_bytes() const { return compressed_bytes_; }

    // Offsets within them.
    [[nodiscard]] std::int64_t own(std::int32_t gradient) const { return own_[index(gradient)]; }
    [[nodiscard]] std::int64_t place(std::int32_t gradient) const {
        return place_[index(gradient)];
    }
    [[nodiscard]] std::int64_t bucket(std::int32_t bucket) const { return bucket_[index(bucket)]; }
    [[nodiscard]] std::int64_t compressed(std::int32_t bucket) const {
        return compressed_[index(bucket)];
    }
    [[nodiscard]] std::int64_t compressed_place(std::int32_t gradient) const {
        return compressed_place_[index(gradient)];
    }

  private:
    static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
    [[nodiscard]] std::int64_t aligned(std::int64_t offset) const;

    std::vector<Gradient> gradients_;
    std::int64_t alignment_bytes_;
    bool views_;
    std::int64_t buckets_bytes_ = 0;
    std::int64_t own_bytes_ = 0;
    std::int64_t compressed_bytes_ = 0;
    std::vector<std::int64_t> own_;
    std::vector<std::int64_t> place_;
    std::vector<std::int64_t> bucket_;
    std::vector<std::int64_t> compressed_;
    std::vector<std::int64_t> compressed_place_;  // by gradient
};

}  // namespace bucketwise
