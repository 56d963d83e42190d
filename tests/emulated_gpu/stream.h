// Streams, and which of them are being captured.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "tests/emulated_gpu/stream_handle.h"

namespace bucketwise::emulated {

// Like enqueue(), with an error for every misuse.
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
