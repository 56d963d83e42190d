#include <cublas_v2.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/emulated_gpu/device_numbers.h"
#include "tests/emulated_gpu/gate.h"

namespace bucketwise {
namespace {

using testing::DeviceNumbers;
using testing::NumberFormat;

struct Types {
    std::string name;
    NumberFormat in;
    cudaDataType in_type;
    NumberFormat out;
    cudaDataType out_type;
    cublasComputeType_t compute;
};

std::vector<Types> all_types() {
    constexpr NumberFormat f16 = testing::format_of_float16;
    constexpr NumberFormat bf16 = testing::format_of_bfloat16;
    constexpr NumberFormat f32 = testing::format_of_float32;
    constexpr NumberFormat f64 = testing::format_of_float64;
    return {
        {"f32", f32, CUDA_R_32F, f32, CUDA_R_32F, CUBLAS_COMPUTE_32F},
        {"f32 pedantic", f32, CUDA_R_32F, f32, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC},
        {"tf32", f32, CUDA_R_32F, f32, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
        {"bf16", bf16, CUDA_R_16BF, bf16, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
        {"bf16 to f32", bf16, CUDA_R_16BF, f32, CUDA_R_32F, CUBLAS_COMPUTE_32F},
        {"f16", f16, CUDA_R_16F, f16, CUDA_R_16F, CUBLAS_COMPUTE_32F},
        {"f16 to f32", f16, CUDA_R_16F, f32, CUDA_R_32F, CUBLAS_COMPUTE_32F},
        {"f64", f64, CUDA_R_64F, f64, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    };
}

// Two batches of 3 x 4 = (3 x 5)(5 x 4), with room between columns and batches.
struct Shape {
    static constexpr int m = 3;
    static constexpr int n = 4;
    static constexpr int k = 5;
    static constexpr int leading = 7;
    static constexpr int stride = 40;  // at least leading x 5
    static constexpr int batches = 2;
    static constexpr std::size_t elements = std::size_t{stride} * batches;
};

std::vector<double> oracle(const std::vector<double>& a, bool transposed_a,
                           const std::vector<double>& b, bool transposed_b, std::vector<double> c,
                           double alpha, double beta) {
    const auto at = [](int batch, int row, int column) {
        return static_cast<std::size_t>(batch * Shape::stride + column * Shape::leading + row);
    };
    for (int batch = 0; batch < Shape::batches; ++batch) {
        for (int row = 0; row < Shape::m; ++row) {
            for (int column = 0; column < Shape::n; ++column) {
                double sum = 0;
                for (int i = 0; i < Shape::k; ++i) {
                    sum += a[transposed_a ? at(batch, i, row) : at(batch, row, i)] *
                           b[transposed_b ? at(batch, column, i) : at(batch, i, column)];
                }
                double& out = c[at(batch, row, column)];
                out = alpha * sum + (beta == 0 ? 0 : beta * out);
            }
        }
    }
    return c;
}

std::vector<double> small_integers(std::mt19937& random) {
    std::vector<double> values(Shape::elements);
    for (double& value : values) {
        value = static_cast<double>(static_cast<int>(random() % 7) - 3);
    }
    return values;
}

cublasOperation_t operation(bool transposed) {
    return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// alpha and beta are float32 but for CUBLAS_COMPUTE_64F.
struct Scalar {
    float narrow;
    double wide;
    [[nodiscard]] const void* as(cublasComputeType_t compute) const {
        return compute == CUBLAS_COMPUTE_64F ? static_cast<const void*>(&wide) : &narrow;
    }
};

// At most 2 x 5 x 9 + 3 x 3 = 99 in between and at the end: exact in every type, for bfloat16 holds
// integers to 256.
TEST_CASE("matrices are multiplied in every layout and type, and nothing else is written") {
    const cudaStream_t stream = testing::new_stream();
    cublasHandle_t handle = nullptr;
    REQUIRE(cublasCreate_v2(&handle) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetStream_v2(handle, stream) == CUBLAS_STATUS_SUCCESS);
    std::mt19937 random(11);
    for (const Types& types : all_types()) {
        for (int layout = 0; layout < 8; ++layout) {
            const bool transposed_a = (layout & 1) != 0;
            const bool transposed_b = (layout & 2) != 0;
            const bool with_beta = (layout & 4) != 0;
            const std::vector<double> a = small_integers(random);
            const std::vector<double> b = small_integers(random);
            const std::vector<double> c = small_integers(random);
            const DeviceNumbers device_a(types.in, a, stream);
            const DeviceNumbers device_b(types.in, b, stream);
            const DeviceNumbers device_c(types.out, c, stream);
            const Scalar alpha{2, 2};
            const Scalar beta = with_beta ? Scalar{-3, -3} : Scalar{0, 0};
            CAPTURE(types.name, layout);
            CHECK(cublasGemmStridedBatchedEx(
                      handle, operation(transposed_a), operation(transposed_b), Shape::m, Shape::n,
                      Shape::k, alpha.as(types.compute), device_a.get(), types.in_type,
                      Shape::leading, Shape::stride, device_b.get(), types.in_type, Shape::leading,
                      Shape::stride, beta.as(types.compute), device_c.get(), types.out_type,
                      Shape::leading, Shape::stride, Shape::batches, types.compute,
                      CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
            CHECK(device_c.values() ==
                  oracle(a, transposed_a, b, transposed_b, c, alpha.wide, beta.wide));
        }
    }
    CHECK(cublasDestroy_v2(handle) == CUBLAS_STATUS_SUCCESS);
}

// c of 1 x 1 = (1 x k)(k x 1).
double dot(const Types& types, const std::vector<double>& a, const std::vector<double>& b, double c,
           float beta, cublasMath_t math = CUBLAS_DEFAULT_MATH) {
    const cudaStream_t stream = testing::new_stream();
    cublasHandle_t handle = nullptr;
    REQUIRE(cublasCreate_v2(&handle) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetStream_v2(handle, stream) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetMathMode(handle, math) == CUBLAS_STATUS_SUCCESS);
    const DeviceNumbers device_a(types.in, a, stream);
    const DeviceNumbers device_b(types.in, b, stream);
    const DeviceNumbers device_c(types.out, {c}, stream);
    const float alpha = 1;
    const int k = static_cast<int>(a.size());
    CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, k, &alpha, device_a.get(),
                       types.in_type, 1, device_b.get(), types.in_type, k, &beta, device_c.get(),
                       types.out_type, 1, types.compute,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    const double result = device_c.values().front();
    CHECK(cublasDestroy_v2(handle) == CUBLAS_STATUS_SUCCESS);
    return result;
}

TEST_CASE("16-bit products are summed in float32 and rounded once") {
    // 256 + 1 + 2 = 259, between the bfloat16 258 and 260, and 260 is even in the last place;
    // rounded after each addition it would be 256, then 258.
    CHECK(dot(all_types()[3], {256, 1, 2}, {1, 1, 1}, 0, 0) == 260);
}

TEST_CASE("tf32 rounds what it multiplies to 10 bits, where the call or the handle asks for it") {
    const std::vector<double> a{1 + std::ldexp(1.0, -11)};  // half a last place: away from zero
    const double rounded = 1 + std::ldexp(1.0, -10);
    CHECK(dot(all_types()[0], a, {1}, 0, 0) == a[0]);
    CHECK(dot(all_types()[2], a, {1}, 0, 0) == rounded);
    CHECK(dot(all_types()[0], a, {1}, 0, 0, CUBLAS_TF32_TENSOR_OP_MATH) == rounded);
    CHECK(dot(all_types()[1], a, {1}, 0, 0, CUBLAS_TF32_TENSOR_OP_MATH) == a[0]);
}

TEST_CASE("without beta the old result is not read") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(dot(all_types()[0], {2}, {3}, nan, 0) == 6);
    CHECK(std::isnan(dot(all_types()[0], {2}, {3}, nan, 1)));
}

TEST_CASE("products that cuBLAS would refuse are refused") {
    const cudaStream_t stream = testing::new_stream();
    cublasHandle_t handle = nullptr;
    REQUIRE(cublasCreate_v2(&handle) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetStream_v2(handle, stream) == CUBLAS_STATUS_SUCCESS);
    const float one = 1;
    const auto multiply = [&](int lda, int ldb, int ldc, cudaDataType type,
                              cublasComputeType_t compute) {
        return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, 3, 4, 0, &one, nullptr, type, lda,
                            nullptr, type, ldb, &one, nullptr, CUDA_R_32F, ldc, compute,
                            CUBLAS_GEMM_DEFAULT);
    };
    // A is 3 x 0, the stored B 4 x 0, C 3 x 4.
    CHECK(multiply(2, 4, 3, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(multiply(3, 3, 3, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(multiply(3, 4, 2, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(multiply(3, 4, 3, CUDA_R_8I, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(multiply(3, 4, 3, CUDA_R_32F, CUBLAS_COMPUTE_64F) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(std::string(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED)) ==
          "CUBLAS_STATUS_NOT_SUPPORTED");
    std::vector<char> on_host(16);
    CHECK(cublasSetWorkspace_v2(handle, on_host.data(), 16) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasDestroy_v2(handle) == CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace bucketwise
