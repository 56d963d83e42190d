// Gloo's own all-reduce: a ring that works on segments of at most 1 MiB, two in flight.
//
// communication steps: 2(p-1), each of two or more segments
// bytes on the wire: 2(p-1)/p n, from every rank
#pragma once

#include "hw/gloo/gloo_communicator.h"

namespace bucketwise {

class LibraryAllReduce final : public GlooCommunicator {
  public:
    using GlooCommunicator::GlooCommunicator;

  private:
    void reduce_over_ranks(void* data, std::int64_t elements, DType dtype) override;
};

}  // namespace bucketwise
