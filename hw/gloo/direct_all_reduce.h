// Direct all-reduce ("butterfly" in scenarios/README.md): every rank sends chunk i straight to rank
// i, all at once, adds up its own chunk and sends the result to all others.
//
// communication steps: 2, each of p-1 messages at once
// bytes on the wire: 2(p-1)/p n, from every rank
#pragma once

#include "hw/gloo/gloo_communicator.h"
#include "hw/gloo/scratch.h"

namespace bucketwise {

class DirectAllReduce final : public GlooCommunicator {
  public:
    using GlooCommunicator::GlooCommunicator;

  private:
    void reduce_over_ranks(void* data, std::int64_t elements, DType dtype) override;

    Scratch scratch_;
};

}  // namespace bucketwise
