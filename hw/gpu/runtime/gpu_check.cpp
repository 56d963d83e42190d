#include "hw/gpu/runtime/gpu_check.h"

#include <fmt/format.h>

#include "hw/gpu/runtime/cublas_library.h"

namespace bucketwise {

std::string gpu_error_text(const char* call, const char* name, const char* meaning,
                           const CallPlace& place) {
    return fmt::format("{}: {} ({}), at {}:{}", call, name, meaning, place.file, place.line);
}

void check_gpu(cudaError_t result, const char* call, const CallPlace& place) {
    if (result != cudaSuccess) {
        throw GpuError(
            gpu_error_text(call, cudaGetErrorName(result), cudaGetErrorString(result), place));
    }
}

void check_gpu(cublasStatus_t result, const char* call, const CallPlace& place) {
    if (result != CUBLAS_STATUS_SUCCESS) {
        throw GpuError(gpu_error_text(call, cublas().cublasGetStatusName(result),
                                      cublas().cublasGetStatusString(result), place));
    }
}

}  // namespace bucketwise
