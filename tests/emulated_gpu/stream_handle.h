// A stream as calls name it, and all that there are. Its operations: stream.h, capture.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>

#include "tests/emulated_gpu/handles.h"
#include "tests/emulated_gpu/worker.h"

namespace bucketwise::emulated {
class Capture;
}

// Everything but the worker is guarded by issuing().
struct CUstream_st {
    CUstream_st(int on_device, bool waits_for_default)
        : device(on_device), blocking(waits_for_default) {}

    int device;
    bool blocking;
    bucketwise::emulated::Worker worker;
    bucketwise::emulated::Capture* capture = nullptr;
    std::size_t lane = 0;  // of this stream in the capture
};

namespace bucketwise::emulated {

// Taken by the threads of the program while they call the runtime, and never by a stream's thread:
// it would order the streams.
std::mutex& issuing();

// Under issuing().
Handles<CUstream_st>& streams();

// cudaSuccess, or the error of a call with such a handle. Under issuing().
cudaError_t check_stream(cudaStream_t stream);

}  // namespace bucketwise::emulated
