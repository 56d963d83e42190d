#include "hw/compute/gradient_buffers.h"

#include <algorithm>

namespace bucketwise {
namespace {

constexpr std::int64_t compressed_element_bytes = 2;

bool keeps_apart(const FrameworkSync& framework) {
    return framework.adds_into_bucket || framework.copies != StreamCopies::none;
}

}  // namespace

GradientBuffers::GradientBuffers(const std::vector<Gradient>& gradients, const SyncSettings& sync,
                                 TensorSource& source)
    : gradients_(gradients),
      alignment_bytes_(source.alignment_bytes),
      gradient_alignment_(sync.policy.gradient_alignment),
      held_as_(sync.framework.reduced_as),
      views_(sync.communicates && !(sync.copies_in && sync.copies_back) &&
             !keeps_apart(sync.framework)),
      in_place_(gradients.size(), false),
      place_(gradients.size(), 0),
      compressed_place_(gradients.size(), 0) {
    std::int64_t elements = 0;
    std::int64_t offset = 0;
    std::int64_t beside = 0;  // by which buckets are larger than gradients
    for (const Gradient& gradient : gradients) {
        own_offset_.push_back(offset);
        const std::int64_t held = element_size(held_as_.value_or(gradient.dtype)).count;
        beside += gradient.numel * held - gradient.size().count;
        beside += (gradient_alignment_ + sync.policy.bucket_alignment - 2) * held;
        offset += aligned(gradient.size().count);
        elements += gradient.numel;
    }
    // A bucket is no larger than its gradients, each aligned and padded.
    const std::int64_t room_for_all = offset + alignment_bytes_;
    buckets_ =
        source.tensor(sync.communicates ? room_for_all + std::max<std::int64_t>(beside, 0) : 0);
    own_ = source.tensor(views_ ? 0 : room_for_all);
    compressed_ = source.tensor(sync.comm_hook == CommHook::none
                                    ? 0
                                    : compressed_element_bytes * elements +
                                          alignment_bytes_ * (std::ssize(gradients) + 1));
}

void GradientBuffers::arrange(const BucketPlan& plan) {
    bucket_.clear();
    compressed_bucket_.clear();
    std::int64_t offset = 0;
    std::int64_t compressed_offset = 0;
    for (const Bucket& bucket : plan.buckets) {
        bucket_.push_back(offset);
        compressed_bucket_.push_back(compressed_offset);
        const std::int64_t held = element_size(held_as_.value_or(bucket.dtype)).count;
        std::int64_t numel = 0;
        for (const std::int32_t gradient : bucket.gradients) {
            numel = (numel + gradient_alignment_ - 1) / gradient_alignment_ * gradient_alignment_;
            place_[at(gradient)] = offset + numel * held;
            compressed_place_[at(gradient)] = compressed_offset + compressed_element_bytes * numel;
            numel += gradients_[at(gradient)].numel;
            in_place_[at(gradient)] = bucket.in_place;
        }
        numel = std::max(numel, bucket.size.count / element_size(bucket.dtype).count);
        offset = aligned(offset + numel * held);
        compressed_offset = aligned(compressed_offset + compressed_element_bytes * numel);
    }
}

std::int64_t GradientBuffers::aligned(std::int64_t offset) const {
    return (offset + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_;
}

}  // namespace bucketwise
