// The memory of one rank's gradients and buckets.
//
// Every bucket lies in one arena, bucket after bucket in launch order of the plan, its gradients
// side by side. Gradients either live there, as views, or in memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/arena.h"
#include "sim/plan.h"
#include "sim/strategy.h"
#include "sim/workload.h"

namespace bucketwise {

class GradientBuffers {
  public:
    // Gradients are views of their buckets where `sync` copies them neither in nor back, or not
    // back (DDP's gradient_as_bucket_view). A hook needs a second buffer of half the size.
    GradientBuffers(const std::vector<Gradient>& gradients, const SyncSettings& sync);

    // Lays the buckets out for another plan of the same gradients. What they held is lost.
    void arrange(const BucketPlan& plan);

    [[nodiscard]] bool gradients_are_views() const { return views_; }
    [[nodiscard]] std::byte* gradient(std::int32_t index);         // where backward writes it
    [[nodiscard]] std::byte* place_in_bucket(std::int32_t index);  // the same memory for views
    [[nodiscard]] std::byte* bucket(std::int32_t index);
    [[nodiscard]] std::byte* compressed(std::int32_t bucket);  // 16 bits an element

  private:
    std::vector<std::int64_t> gradient_offset_;
    std::vector<std::int64_t> place_offset_;
    std::vector<std::int64_t> bucket_offset_;
    std::vector<std::int64_t> bucket_numel_offset_;
    std::vector<Gradient> gradients_;
    bool views_;
    Arena buckets_;
    Arena own_;
    Arena compressed_;
};

}  // namespace bucketwise
