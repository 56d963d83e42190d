// The places of one rank's gradients and buckets in memory, in bytes, for any kind of memory.
//
// Every bucket lies in one block, bucket after bucket in launch order of the plan, its gradients
// side by side. Gradients either live there, as views, or in a block of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/arena.h"
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

// Memory: Arena, or another device's.
template <typename Memory>
class BasicGradientBuffers {
  public:
    // See GradientLayout.
    BasicGradientBuffers(const std::vector<Gradient>& gradients, const SyncSettings& sync)
        : layout_(gradients, sync, Memory::alignment_bytes),
          buckets_(layout_.buckets_bytes()),
          own_(layout_.own_bytes()),
          compressed_(layout_.compressed_bytes()) {}

    // Lays the buckets out for another plan of the same gradients. The old contents are lost.
    void arrange(const BucketPlan& plan) { layout_.arrange(plan); }

    [[nodiscard]] bool gradients_are_views() const { return layout_.gradients_are_views(); }

    // False where the strategy does not communicate.
    [[nodiscard]] bool has_buckets() const { return layout_.buckets_bytes() > 0; }

    // Where backward writes it.
    [[nodiscard]] std::byte* gradient(std::int32_t index) {
        return gradients_are_views() ? place_in_bucket(index) : own_.at(layout_.own(index));
    }
    // The same memory for views.
    [[nodiscard]] std::byte* place_in_bucket(std::int32_t index) {
        return buckets_.at(layout_.place(index));
    }
    [[nodiscard]] std::byte* bucket(std::int32_t index) {
        return buckets_.at(layout_.bucket(index));
    }
    // 16 bits an element.
    [[nodiscard]] std::byte* compressed(std::int32_t bucket) {
        return compressed_.at(layout_.compressed(bucket));
    }
    [[nodiscard]] std::byte* compressed_place(std::int32_t gradient) {
        return compressed_.at(layout_.compressed_place(gradient));
    }

    [[nodiscard]] std::array<const Memory*, 3> blocks() const {
        return {&buckets_, &own_, &compressed_};
    }

  private:
    GradientLayout layout_;
    Memory buckets_;
    Memory own_;
    Memory compressed_;
};

using GradientBuffers = BasicGradientBuffers<Arena>;

}  // namespace bucketwise
