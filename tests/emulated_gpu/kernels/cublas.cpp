// Matrix products of cuBLAS on the CPU.
#include <cublas_v2.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/stream.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
};

namespace bucketwise::emulated {
namespace {

// C = alpha op(A) op(B) + beta C for each of `batches`, column-major. op(A) is m x k, op(B) k x n.
// Leading dimensions and strides in elements.
struct Product {
    bool transposed_a = false;
    bool transposed_b = false;
    int m = 0;
    int n = 0;
    int k = 0;
    double alpha = 0;
    double beta = 0;
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;
    int lda = 0;
    int ldb = 0;
    int ldc = 0;
    std::int64_t stride_a = 0;
    std::int64_t stride_b = 0;
    std::int64_t stride_c = 0;
    int batches = 1;
    bool tf32 = false;
};

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;

// To 10 bits behind the leading one, to nearest, ties away from zero: cvt.rna.tf32.f32 of PTX.
float rounded_to_tf32(float value) {
    if (!std::isfinite(value)) {
        return value;
    }
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    bits = (bits + 0x1000U) & ~0x1FFFU;
    std::memcpy(&value, &bits, sizeof(bits));
    return value;
}

// op(data) in the type of the accumulator.
template <typename Wide, typename T>
Matrix<Wide> operand(const T* data, int rows, int columns, int leading, bool transposed,
                     bool tf32) {
    using View = Eigen::Map<const Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
    Matrix<Wide> result;
    if (transposed) {
        result = View(data, columns, rows, Eigen::OuterStride<>(leading))
                     .transpose()
                     .template cast<Wide>();
    } else {
        result = View(data, rows, columns, Eigen::OuterStride<>(leading)).template cast<Wide>();
    }
    if constexpr (std::is_same_v<Wide, float>) {
        if (tf32) {
            result = result.unaryExpr(&rounded_to_tf32);
        }
    }
    return result;
}

template <typename Wide, typename In, typename Out>
void multiply_batch(const Product& product, const In* a, const In* b, Out* c) {
    const auto alpha = static_cast<Wide>(product.alpha);
    const auto beta = static_cast<Wide>(product.beta);
    Matrix<Wide> sum = Matrix<Wide>::Zero(product.m, product.n);
    if (alpha != 0 && product.k > 0) {
        sum.noalias() =
            operand<Wide>(a, product.m, product.k, product.lda, product.transposed_a,
                          product.tf32) *
            operand<Wide>(b, product.k, product.n, product.ldb, product.transposed_b, product.tf32);
    }
    for (int column = 0; column < product.n; ++column) {
        Out* out = c + std::int64_t{column} * product.ldc;
        for (int row = 0; row < product.m; ++row) {
            // Without beta, C may be anything and is not read.
            const Wide added = alpha * sum(row, column);
            out[row] =
                static_cast<Out>(beta == 0 ? added : added + beta * static_cast<Wide>(out[row]));
        }
    }
}

template <typename Wide, typename In, typename Out>
void multiply(const Product& product) {
    const auto* a = static_cast<const In*>(alias(product.a));
    const auto* b = static_cast<const In*>(alias(product.b));
    auto* c = static_cast<Out*>(alias(product.c));
    for (std::int64_t i = 0; i < product.batches; ++i) {
        multiply_batch<Wide>(product, a + i * product.stride_a, b + i * product.stride_b,
                             c + i * product.stride_c);
    }
}

using Multiply = void (*)(const Product&);

// Null where there is none.
Multiply multiply_for(cudaDataType in, cudaDataType out, cublasComputeType_t compute) {
    if (compute == CUBLAS_COMPUTE_64F) {
        return in == CUDA_R_64F && out == CUDA_R_64F ? multiply<double, double, double> : nullptr;
    }
    if (in == CUDA_R_32F && out == CUDA_R_32F) {
        const bool known = compute == CUBLAS_COMPUTE_32F ||
                           compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                           compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        return known ? multiply<float, float, float> : nullptr;
    }
    if (compute != CUBLAS_COMPUTE_32F) {
        return nullptr;
    }
    if (in == CUDA_R_16BF) {
        if (out == CUDA_R_16BF) {
            return multiply<float, Eigen::bfloat16, Eigen::bfloat16>;
        }
        return out == CUDA_R_32F ? multiply<float, Eigen::bfloat16, float> : nullptr;
    }
    if (in == CUDA_R_16F) {
        if (out == CUDA_R_16F) {
            return multiply<float, Eigen::half, Eigen::half>;
        }
        return out == CUDA_R_32F ? multiply<float, Eigen::half, float> : nullptr;
    }
    return nullptr;
}

bool has_valid_shape(const Product& product) {
    const auto fits = [](int leading, int rows) { return leading >= std::max(1, rows); };
    return product.m >= 0 && product.n >= 0 && product.k >= 0 && product.batches >= 0 &&
           fits(product.lda, product.transposed_a ? product.k : product.m) &&
           fits(product.ldb, product.transposed_b ? product.n : product.k) &&
           fits(product.ldc, product.m);
}

double scalar(const void* value, cublasComputeType_t compute) {
    return compute == CUBLAS_COMPUTE_64F ? *static_cast<const double*>(value)
                                         : double{*static_cast<const float*>(value)};
}

bool is_known(cublasOperation_t operation) {
    return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T;
}

}  // namespace
}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

// Products here need no workspace: only whether there is one is looked at.
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    return bytes == 0 || is_memory(MemoryKind::device, workspace, bytes)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    handle->math_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
    switch (type) {
        case MAJOR_VERSION:
            *value = CUBLAS_VER_MAJOR;
            return CUBLAS_STATUS_SUCCESS;
        case MINOR_VERSION:
            *value = CUBLAS_VER_MINOR;
            return CUBLAS_STATUS_SUCCESS;
        case PATCH_LEVEL:
            *value = CUBLAS_VER_PATCH;
            return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_ARCH_MISMATCH:
            return "CUBLAS_STATUS_ARCH_MISMATCH";
        case CUBLAS_STATUS_MAPPING_ERROR:
            return "CUBLAS_STATUS_MAPPING_ERROR";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_INTERNAL_ERROR:
            return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        case CUBLAS_STATUS_LICENSE_ERROR:
            return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "unknown cuBLAS status";
}

const char* cublasGetStatusString(cublasStatus_t status) {
    return cublasGetStatusName(status);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t operation_a,
                                          cublasOperation_t operation_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType type_a,
                                          int lda, long long stride_a, const void* b,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batches,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    const Multiply multiply_these = multiply_for(type_a, type_c, compute);
    if (!is_known(operation_a) || !is_known(operation_b) || type_a != type_b ||
        multiply_these == nullptr) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (alpha == nullptr || beta == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                      (compute == CUBLAS_COMPUTE_32F && type_a == CUDA_R_32F &&
                       (handle->math_mode & CUBLAS_TF32_TENSOR_OP_MATH) != 0);
    const Product product{.transposed_a = operation_a == CUBLAS_OP_T,
                          .transposed_b = operation_b == CUBLAS_OP_T,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = scalar(alpha, compute),
                          .beta = scalar(beta, compute),
                          .a = a,
                          .b = b,
                          .c = c,
                          .lda = lda,
                          .ldb = ldb,
                          .ldc = ldc,
                          .stride_a = stride_a,
                          .stride_b = stride_b,
                          .stride_c = stride_c,
                          .batches = batches,
                          .tf32 = tf32};
    if (!has_valid_shape(product)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return launch(handle->stream, [=] { multiply_these(product); }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t operation_a,
                            cublasOperation_t operation_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c,
                            cudaDataType type_c, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(handle, operation_a, operation_b, m, n, k, alpha, a, type_a,
                                      lda, 0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1,
                                      compute, algorithm);
}
