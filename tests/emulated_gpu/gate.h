// The parts of CUDA that tests of the double need.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/emulated_gpu/completion.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace bucketwise::testing {

inline cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess ? stream
                                                                                    : nullptr;
}

inline cudaEvent_t new_event(unsigned int flags = cudaEventDisableTiming) {
    cudaEvent_t event = nullptr;
    return cudaEventCreateWithFlags(&event, flags) == cudaSuccess ? event : nullptr;
}

// Holds a stream up until it is opened.
class Gate {
  public:
    void block(cudaStream_t stream) {
        emulated::enqueue(stream, [&opened = opened_] { opened.wait(); });
    }
    void open() { opened_.complete(); }

  private:
    emulated::Completion& opened_ = emulated::new_completion();
};

}  // namespace bucketwise::testing
