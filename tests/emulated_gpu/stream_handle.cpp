#include "tests/emulated_gpu/stream_handle.h"

namespace bucketwise::emulated {
namespace {

bool is_default(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

}  // namespace

std::mutex& issuing() {
    static auto& only = *new std::mutex;
    return only;
}

Handles<CUstream_st>& streams() {
    static auto& all = *new Handles<CUstream_st>;
    return all;
}

cudaError_t check_stream(cudaStream_t stream) {
    if (is_default(stream)) {
        return cudaErrorInvalidValue;
    }
    return streams().is_live(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

}  // namespace bucketwise::emulated
