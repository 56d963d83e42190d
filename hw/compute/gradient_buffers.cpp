#include "hw/compute/gradient_buffers.h"

namespace bucketwise {
namespace {

constexpr std::int64_t compressed_element_bytes = 2;

}  // namespace

GradientBuffers::GradientBuffers(const std::vector<Gradient>& gradients, const SyncSettings& sync,
                                 TensorSource& source)
    : gradients_(gradients),
      alignment_bytes_(source.alignment_bytes),
      views_(sync.communicates && !(sync.copies_in && sync.copies_back)),
      place_(gradients.size(), 0),
      compressed_place_(gradients.size(), 0) {
    std::int64_t elements = 0;
    std::int64_t offset = 0;
    for (const Gradient& gradient : gradients) {
        own_offset_.push_back(offset);
        offset += aligned(gradient.size().count);
        elements += gradient.numel;
    }
    // A bucket is no larger than its gradients, each aligned.
    const std::int64_t room_for_all = offset + alignment_bytes_;
    buckets_ = source.tensor(sync.communicates ? room_for_all : 0);
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
        std::int64_t numel = 0;
        for (const std::int32_t gradient : bucket.gradients) {
            place_[at(gradient)] = offset;
            compressed_place_[at(gradient)] = compressed_offset + compressed_element_bytes * numel;
            offset += gradients_[at(gradient)].size().count;
            numel += gradients_[at(gradient)].numel;
        }
        offset = aligned(offset);
        compressed_offset = aligned(compressed_offset + compressed_element_bytes * numel);
    }
}

std::int64_t GradientBuffers::aligned(std::int64_t offset) const {
    return (offset + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_;
}

}  // namespace bucketwise
