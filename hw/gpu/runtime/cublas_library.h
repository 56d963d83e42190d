// cuBLAS, opened at run time: the functions that this program calls, typed as their header has
// them.
#pragma once

#include <cublas_v2.h>

#include "hw/gpu/runtime/opened_library.h"

namespace bucketwise {

// By their own names, so that a call reads like any other: cublas().cublasCreate(&handle).
// The header gives functions that changed a second version, and macros their old names.
struct CublasLibrary {
    static const OpenedLibrary& file();

    decltype(&::cublasGetStatusName) cublasGetStatusName = file()["cublasGetStatusName"];
    decltype(&::cublasGetStatusString) cublasGetStatusString = file()["cublasGetStatusString"];
    decltype(&::cublasGetProperty) cublasGetProperty = file()["cublasGetProperty"];
    decltype(&::cublasCreate) cublasCreate = file()["cublasCreate_v2"];
    decltype(&::cublasDestroy) cublasDestroy = file()["cublasDestroy_v2"];
    decltype(&::cublasSetStream) cublasSetStream = file()["cublasSetStream_v2"];
    decltype(&::cublasSetWorkspace) cublasSetWorkspace = file()["cublasSetWorkspace_v2"];
    // Spelled out, as the header has a second one of this name, for C++ only.
    cublasStatus_t (*cublasGemmStridedBatchedEx)(
        cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
        const void* alpha, const void* a, cudaDataType, int lda, long long stride_a, const void* b,
        cudaDataType, int ldb, long long stride_b, const void* beta, void* c, cudaDataType, int ldc,
        long long stride_c, int matrices, cublasComputeType_t,
        cublasGemmAlgo_t) = file()["cublasGemmStridedBatchedEx"];
};

// Opens it the first time, which takes a tenth of a second or more. Throws LibraryError where the
// library of the headers' major version is not found, or lacks one of the functions.
const CublasLibrary& cublas();

}  // namespace bucketwise
