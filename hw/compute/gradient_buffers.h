// The memory of one rank's gradients and buckets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/arena.h"
#include "hw/compute/gradient_layout.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Memory: Arena, or the like of another device.
template <typename Memory>
class BasicGradientBuffers {
  public:
    // See GradientLayout.
    BasicGradientBuffers(const std::vector<Gradient>& gradients, const SyncSettings& sync)
        : layout_(gradients, sync, Memory::alignment_bytes),
          buckets_(layout_.buckets_bytes()),
          own_(layout_.own_bytes()),
          compressed_(layout_.compressed_bytes()) {}

    // Lays the buckets out for another plan of the same gradients. What they held is lost.
    void arrange(const BucketPlan& plan) { layout_.arrange(plan); }

    [[nodiscard]] bool gradients_are_views() const { return layout_.gradients_are_views(); }

    // None where the strategy does not communicate.
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
