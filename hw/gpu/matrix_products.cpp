#include "hw/gpu/matrix_products.h"

#include <array>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// NVIDIA's advice for Hopper; older GPUs need less.
constexpr std::int64_t workspace_bytes = std::int64_t{32} << 20;

cudaDataType_t data_type(DType dtype) {
    constexpr std::array types{CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_64F};
    return types[static_cast<std::size_t>(dtype)];
}

cublasComputeType_t compute_type(Arithmetic arithmetic) {
    return arithmetic == Arithmetic::tfloat32  ? CUBLAS_COMPUTE_32F_FAST_TF32
           : arithmetic == Arithmetic::float64 ? CUBLAS_COMPUTE_64F
                                               : CUBLAS_COMPUTE_32F;
}

int as_int(std::int64_t value, const char* what) {
    if (value > std::numeric_limits<int>::max()) {
        throw std::runtime_error(fmt::format("a matrix product of {} {}: cuBLAS takes at most {}",
                                             value, what, std::numeric_limits<int>::max()));
    }
    return static_cast<int>(value);
}

}  // namespace

std::string cublas_version() {
    int major = 0;
    int minor = 0;
    int patch = 0;
    if (cublas().cublasGetProperty(MAJOR_VERSION, &major) != CUBLAS_STATUS_SUCCESS ||
        cublas().cublasGetProperty(MINOR_VERSION, &minor) != CUBLAS_STATUS_SUCCESS ||
        cublas().cublasGetProperty(PATCH_LEVEL, &patch) != CUBLAS_STATUS_SUCCESS) {
        return "cuBLAS of unknown version";
    }
    return fmt::format("cuBLAS {}.{}.{}", major, minor, patch);
}

DType operand_dtype(Arithmetic arithmetic) {
    constexpr std::array dtypes{DType::float32, DType::float32, DType::float16, DType::bfloat16,
                                DType::float64};
    return dtypes[static_cast<std::size_t>(beside_float8(arithmetic))];
}

bool can_write(Arithmetic arithmetic, DType dtype) {
    const DType operand = operand_dtype(arithmetic);
    return dtype == operand || (dtype == DType::float32 && operand != DType::float64);
}

MatrixProducts::MatrixProducts(const GpuStream& stream, Arithmetic arithmetic)
    : arithmetic_(arithmetic), workspace_(workspace_bytes) {
    cublasHandle_t handle = nullptr;
    check_gpu(cublas().cublasCreate(&handle), "cublasCreate");
    handle_.reset(handle);
    check_gpu(cublas().cublasSetStream(handle, stream.get()), "cublasSetStream");
    // After the stream, which resets it.
    check_gpu(cublas().cublasSetWorkspace(handle, workspace_.at(0),
                                          static_cast<std::size_t>(workspace_.size_bytes())),
              "cublasSetWorkspace");
}

// A row-major matrix is the transpose of the column-major one in the same memory, so each product
// is asked for transposed: (x y)^T = y^T x^T.
void MatrixProducts::forward(const MatrixProduct& p, const void* a, const void* b, void* c) {
    multiply(p.n, p.m, p.k, p.count, {b, CUBLAS_OP_N, p.n, p.k * p.n},
             {a, CUBLAS_OP_N, p.k, p.m * p.k}, c, operand_dtype(arithmetic_), 1, 0);
}

void MatrixProducts::input_gradient(const MatrixProduct& p, const void* c, const void* b, void* a) {
    multiply(p.k, p.m, p.n, p.count, {b, CUBLAS_OP_T, p.n, p.k * p.n},
             {c, CUBLAS_OP_N, p.n, p.m * p.n}, a, operand_dtype(arithmetic_), 1, 0);
}

void MatrixProducts::weight_gradient(const MatrixProduct& p, const void* a, const void* c, void* b,
                                     DType dtype, double factor, double keep) {
    multiply(p.n, p.k, p.m, p.count, {c, CUBLAS_OP_N, p.n, p.m * p.n},
             {a, CUBLAS_OP_T, p.k, p.m * p.k}, b, dtype, factor, keep);
}

void MatrixProducts::multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth,
                              std::int64_t count, const Operand& a, const Operand& b, void* c,
                              DType c_dtype, double factor, double keep) {
    // Scalars have the type that is computed in.
    const auto factor_32 = static_cast<float>(factor);
    const auto keep_32 = static_cast<float>(keep);
    const bool is_64 = arithmetic_ == Arithmetic::float64;
    const void* alpha = is_64 ? static_cast<const void*>(&factor) : &factor_32;
    const void* beta = is_64 ? static_cast<const void*>(&keep) : &keep_32;
    const cudaDataType_t type = data_type(operand_dtype(arithmetic_));
    check_gpu(
        cublas().cublasGemmStridedBatchedEx(
            handle_.get(), a.operation, b.operation, as_int(rows, "rows"),
            as_int(columns, "columns"), as_int(depth, "terms"), alpha, a.data, type,
            as_int(a.leading, "columns"), a.stride, b.data, type, as_int(b.leading, "columns"),
            b.stride, beta, c, data_type(c_dtype), as_int(rows, "rows"), rows * columns,
            as_int(count, "matrices"), compute_type(arithmetic_), CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
}

}  // namespace bucketwise
