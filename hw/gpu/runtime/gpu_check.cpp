#include "hw/gpu/runtime/gpu_check.h"

#include <fmt/format.h>

#include "hw/rank/communicator.h"

namespace bucketwise {
namespace {

std::string text_of(const char* call, const char* name, const char* meaning,
                    const CallPlace& place) {
    return fmt::format("{}: {} ({}), at {}:{}", call, name, meaning, place.file, place.line);
}

}  // namespace

void check_gpu(cudaError_t result, const char* call, const CallPlace& place) {
    if (result != cudaSuccess) {
        throw GpuError(text_of(call, cudaGetErrorName(result), cudaGetErrorString(result), place));
    }
}

void check_gpu(cublasStatus_t result, const char* call, const CallPlace& place) {
    if (result != CUBLAS_STATUS_SUCCESS) {
        throw GpuError(
            text_of(call, cublasGetStatusName(result), cublasGetStatusString(result), place));
    }
}

void check_gpu(ncclResult_t result, const char* call, ncclComm_t communicator,
               const CallPlace& place) {
    if (result == ncclSuccess) {
        return;
    }
    // Of the communicator, or of the thread where there is none yet.
    const char* last = ncclGetLastError(communicator);
    const std::string meaning = last == nullptr ? "" : last;
    const std::string text =
        text_of(call, ncclGetErrorString(result),
                meaning.empty() ? "NCCL_DEBUG=WARN tells more" : meaning.c_str(), place);
    if (result == ncclRemoteError || result == ncclSystemError) {
        throw PeerFailure(text);
    }
    throw GpuError(text);
}

}  // namespace bucketwise
