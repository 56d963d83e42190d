// A test double of the CUDA runtime, cuBLAS and NCCL: linked instead of them, it runs host code
// that calls their C functions on a machine without a GPU.
//
// Streams are threads, so work is as asynchronous as on a GPU: whoever forgets to wait for an event
// gets wrong numbers, or a report of ThreadSanitizer. For that to hold, the double's bookkeeping
// orders no two threads that CUDA leaves unordered.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

struct ncclComm;

namespace bucketwise::emulated {

// Runs `work` on the stream's thread after everything given to the stream before, or records it
// when the stream is being captured. For the host versions of kernels. As after a kernel launch,
// cudaGetLastError() tells of a capture that has been invalidated and of a stream that belongs to
// another device than the thread's current one; `work` is dropped then. Aborts on the default
// stream or one that is destroyed.
void enqueue(cudaStream_t stream, std::function<void()> work);

// Where the bytes behind a device pointer really are: device pointers themselves cannot be
// dereferenced. Pinned host memory aliases to itself, nullptr to nullptr. Aborts, saying why, when
// the pointer is neither into memory that is now allocated nor to its end. To be called where the
// memory is used, so in the work given to enqueue().
const void* alias_of(const void* device_pointer);

template <typename T>
T* alias(T* device_pointer) {
    return static_cast<T*>(const_cast<void*>(alias_of(device_pointer)));
}

// The configured limit of a communicator; NCCL_CONFIG_UNDEF_INT where it did not say.
struct CtaRange {
    int min = 0;
    int max = 0;
};
CtaRange ctas_of(const ncclComm* comm);

}  // namespace bucketwise::emulated
