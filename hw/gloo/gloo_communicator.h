// What the communicators over Gloo have in common: all but the all-reduce itself.
#pragma once

#include "hw/gloo/meeting/group.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

class GlooCommunicator : public Communicator {
  public:
    // `group` outlives this.
    explicit GlooCommunicator(GlooGroup& group) : group_(group) {}

    [[nodiscard]] int rank() const final { return group_.rank(); }
    [[nodiscard]] int ranks() const final { return group_.ranks(); }
    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) final;
    void all_gather(const void* own, void* all, Bytes size) final;
    void broadcast_from_first(void* data, Bytes size) final;

  protected:
    // As one collective of the group. At least two ranks and one element.
    virtual void reduce_over_ranks(void* data, std::int64_t elements, DType dtype) = 0;

    [[nodiscard]] GlooGroup& group() { return group_; }

  private:
    GlooGroup& group_;
};

}  // namespace bucketwise
