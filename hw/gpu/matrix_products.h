// The three matrix products of a layer on the GPU, through cuBLAS.
#pragma once

#include <cublas_v2.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "hw/gpu/runtime/cublas_library.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "sim/base/dtype.h"
#include "sim/workload/device.h"
#include "sim/workload/model.h"

namespace bucketwise {

// Such as "cuBLAS 13.0.2".
std::string cublas_version();

// The dtype of an arithmetic's factors: tfloat32 reads float32.
DType operand_dtype(Arithmetic arithmetic);

// Whether a product in `arithmetic` can write its result as `dtype`.
bool can_write(Arithmetic arithmetic, DType dtype);

// All matrices are row-major, without gaps, and `count` of them lie one after another.
class MatrixProducts {
  public:
    // `stream` is kept by reference. Takes a workspace of its own, so that products can be part of
    // a CUDA graph.
    MatrixProducts(const GpuStream& stream, Arithmetic arithmetic);

    // c[m,n] = a[m,k] b[k,n], in the operands' dtype.
    void forward(const MatrixProduct& p, const void* a, const void* b, void* c);
    // a[m,k] = c[m,n] b[k,n]^T, in the operands' dtype.
    void input_gradient(const MatrixProduct& p, const void* c, const void* b, void* a);
    // b[k,n] = factor a[m,k]^T c[m,n] + keep b; b in `dtype`, which can_write() allows.
    void weight_gradient(const MatrixProduct& p, const void* a, const void* c, void* b, DType dtype,
                         double factor, double keep);

    [[nodiscard]] std::int64_t memory_bytes() const { return workspace_.size_bytes(); }

  private:
    struct Operand {
        const void* data = nullptr;
        cublasOperation_t operation = CUBLAS_OP_N;
        std::int64_t leading = 0;
        std::int64_t stride = 0;
    };
    // Column-major, as cuBLAS has it: c[rows,columns] = factor a b + keep c.
    void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, std::int64_t count,
                  const Operand& a, const Operand& b, void* c, DType c_dtype, double factor,
                  double keep);

    struct Deleter {
        void operator()(cublasHandle_t handle) const { cublas().cublasDestroy(handle); }
    };
    Arithmetic arithmetic_;
    DeviceMemory workspace_;
    std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, Deleter> handle_;
};

}  // namespace bucketwise
