#include "hw/gpu/runtime/cublas_library.h"

#include <string>

#include "hw/gpu/runtime/opened_library.h"

namespace bucketwise {

const CublasLibrary& cublas() {
    // The header gives functions that changed a second version, and macros their old names.
    static const CublasLibrary functions = [] {
        const OpenedLibrary library("cuBLAS", "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR));
        return CublasLibrary{
            .cublasGetStatusName = library["cublasGetStatusName"],
            .cublasGetStatusString = library["cublasGetStatusString"],
            .cublasGetProperty = library["cublasGetProperty"],
            .cublasCreate = library["cublasCreate_v2"],
            .cublasDestroy = library["cublasDestroy_v2"],
            .cublasSetStream = library["cublasSetStream_v2"],
            .cublasSetWorkspace = library["cublasSetWorkspace_v2"],
            .cublasGemmStridedBatchedEx = library["cublasGemmStridedBatchedEx"],
        };
    }();
    return functions;
}

}  // namespace bucketwise
