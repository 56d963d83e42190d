// Ring all-reduce (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations"): a reduce-scatter and an all-gather in which every rank sends only to the next and
// receives only from the one before.
//
// communication steps: 2(p-1)
// bytes on the wire: 2(p-1)/p n, from every rank
#pragma once

#include "hw/gloo/gloo_communicator.h"
#include "hw/gloo/scratch.h"

namespace bucketwise {

class RingAllReduce final : public GlooCommunicator {
  public:
    using GlooCommunicator::GlooCommunicator;

  private:
    void reduce_over_ranks(void* data, std::int64_t elements, DType dtype) override;

    Scratch scratch_;
};

}  // namespace bucketwise
