// cuBLAS, opened at run time: the functions that this program calls, typed as their header has
// them.
#pragma once

#include <cublas_v2.h>

namespace bucketwise {

// By their own names, so that a call reads like any other: cublas().cublasCreate(&handle).
struct CublasLibrary {
    decltype(&::cublasGetStatusName) cublasGetStatusName;
    decltype(&::cublasGetStatusString) cublasGetStatusString;
    decltype(&::cublasGetProperty) cublasGetProperty;
    decltype(&::cublasCreate) cublasCreate;
    decltype(&::cublasDestroy) cublasDestroy;
    decltype(&::cublasSetStream) cublasSetStream;
    decltype(&::cublasSetWorkspace) cublasSetWorkspace;
    // Spelled out, as the header has a second one of this name, for C++ only.
    cublasStatus_t (*cublasGemmStridedBatchedEx)(
        cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
        const void* alpha, const void* a, cudaDataType, int lda, long long stride_a, const void* b,
        cudaDataType, int ldb, long long stride_b, const void* beta, void* c, cudaDataType, int ldc,
        long long stride_c, int matrices, cublasComputeType_t, cublasGemmAlgo_t);
};

// Opens it the first time, which takes a tenth of a second or more. Throws LibraryError where the
// library of the headers' major version is not found, or lacks one of the functions.
const CublasLibrary& cublas();

}  // namespace bucketwise
