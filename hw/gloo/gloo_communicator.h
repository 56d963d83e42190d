// Collectives over Gloo's TCP transport, by one implementation or another.
#pragma once

#include "hw/gloo/gloo_collectives.h"
#include "hw/gloo/meeting/group.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

class GlooCommunicator final : public Communicator {
  public:
    // `group` outlives this.
    GlooCommunicator(GlooGroup& group, const GlooCollectives& collectives)
        : group_(group), collectives_(collectives) {}

    [[nodiscard]] int rank() const override { return group_.rank(); }
    [[nodiscard]] int ranks() const override { return group_.ranks(); }
    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override;
    void reduce_scatter_sum(void* data, std::int64_t elements, DType dtype) override;
    void all_gather(const void* own, void* all, Bytes size) override;
    void broadcast_from_first(void* data, Bytes size) override {
        group_.broadcast_from_first(static_cast<char*>(data), size.count);
    }

  private:
    GlooGroup& group_;
    GlooCollectives collectives_;
    Scratch scratch_;
};

}  // namespace bucketwise
