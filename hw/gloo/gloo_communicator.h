// Collectives over Gloo's TCP transport, by one all-reduce or another.
#pragma once

#include "hw/gloo/all_reduces.h"
#include "hw/gloo/meeting/group.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

class GlooCommunicator final : public Communicator {
  public:
    // `group` outlives this.
    GlooCommunicator(GlooGroup& group, AllReduce* all_reduce)
        : group_(group), all_reduce_(all_reduce) {}

    [[nodiscard]] int rank() const override { return group_.rank(); }
    [[nodiscard]] int ranks() const override { return group_.ranks(); }
    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override;
    void all_gather(const void* own, void* all, Bytes size) override;
    void broadcast_from_first(void* data, Bytes size) override {
        group_.broadcast_from_first(static_cast<char*>(data), size.count);
    }

  private:
    GlooGroup& group_;
    AllReduce* all_reduce_;
    Scratch scratch_;
};

}  // namespace bucketwise
