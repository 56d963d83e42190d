// Streams, and which of them are being captured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
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

// What enqueue() does, with an error for every misuse.
cudaError_t launch(cudaStream_t stream, std::function<void()> work);

// The same for what the thread may have done by a device that is not its current one.
cudaError_t issue(cudaStream_t stream, std::function<void()> work);

// Waits for what has been given to the device's streams by now. Not under issuing().
enum class Streams { all, blocking };
void wait_for_streams(int device, Streams which);

// The error of a call that is not allowed on a captured stream; invalidates its capture. Not under
// issuing().
cudaError_t refuse_in_capture(cudaStream_t stream);

// The error of a call that this thread must not make during a capture, of whatever stream, which it
// then invalidates ("potentially unsafe" in the documentation of
// cudaThreadExchangeStreamCaptureMode). Not under issuing().
cudaError_t refuse_unsafe_call();

}  // namespace bucketwise::emulated
