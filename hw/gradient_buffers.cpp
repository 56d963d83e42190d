#include "hw/gradient_buffers.h"

namespace bucketwise {
namespace {

// Buckets and gradients start on a cache line, as allocators give them.
std::int64_t aligned(std::int64_t offset) {
    return (offset + Arena::alignment_bytes - 1) / Arena::alignment_bytes * Arena::alignment_bytes;
}

std::int64_t room_for_all(const std::vector<Gradient>& gradients) {
    std::int64_t bytes = 0;
    for (const Gradient& gradient : gradients) {
        bytes += aligned(gradient.size().count);
    }
    return bytes + Arena::alignment_bytes;
}

std::int64_t elements_of_all(const std::vector<Gradient>& gradients) {
    std::int64_t count = 0;
    for (const Gradient& gradient : gradients) {
        count += gradient.numel;
    }
    return count;
}

constexpr std::int64_t compressed_element_bytes = 2;

}  // namespace

GradientBuffers::GradientBuffers(const std::vector<Gradient>& gradients, const SyncSettings& sync)
    : gradients_(gradients),
      views_(sync.communicates && !(sync.copies_in && sync.copies_back)),
      buckets_(sync.communicates ? room_for_all(gradients) : 0),
      own_(views_ ? 0 : room_for_all(gradients)),
      compressed_(sync.comm_hook == CommHook::none
                      ? 0
                      : compressed_element_bytes * elements_of_all(gradients) +
                            Arena::alignment_bytes *
                                static_cast<std::int64_t>(gradients.size() + 1)) {
    std::int64_t offset = 0;
    for (const Gradient& gradient : gradients) {
        gradient_offset_.push_back(offset);
        offset += aligned(gradient.size().count);
    }
    place_offset_.resize(gradients.size());
}

void GradientBuffers::arrange(const BucketPlan& plan) {
    bucket_offset_.clear();
    bucket_numel_offset_.clear();
    std::int64_t offset = 0;
    std::int64_t compressed_offset = 0;
    for (const Bucket& bucket : plan.buckets) {
        bucket_offset_.push_back(offset);
        bucket_numel_offset_.push_back(compressed_offset);
        std::int64_t numel = 0;
        for (const std::int32_t index : bucket.gradients) {
            const Gradient& gradient = gradients_[static_cast<std::size_t>(index)];
            place_offset_[static_cast<std::size_t>(index)] = offset;
            offset += gradient.size().count;
            numel += gradient.numel;
        }
        offset = aligned(offset);
        compressed_offset = aligned(compressed_offset + compressed_element_bytes * numel);
    }
}

std::byte* GradientBuffers::gradient(std::int32_t index) {
    return views_ ? place_in_bucket(index)
                  : own_.at(gradient_offset_[static_cast<std::size_t>(index)]);
}

std::byte* GradientBuffers::place_in_bucket(std::int32_t index) {
    return buckets_.at(place_offset_[static_cast<std::size_t>(index)]);
}

std::byte* GradientBuffers::bucket(std::int32_t index) {
    return buckets_.at(bucket_offset_[static_cast<std::size_t>(index)]);
}

std::byte* GradientBuffers::compressed(std::int32_t bucket) {
    return compressed_.at(bucket_numel_offset_[static_cast<std::size_t>(bucket)]);
}

}  // namespace bucketwise
