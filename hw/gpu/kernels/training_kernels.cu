#include "hw/gpu/kernels/training_kernels.h"

#include "hw/gpu/kernels/launch.h"

namespace bucketwise {
namespace {

// For kernels whose threads take whole rows or columns: there are few, so small blocks reach more
// multiprocessors.
constexpr int row_block_threads = 32;

__global__ void gather_kernel(GatherCall call) {
    gather_share(call, global_thread(), all_threads());
}

__global__ void add_bias_kernel(float* x, const float* bias, std::int64_t rows,
                                std::int64_t columns) {
    add_bias_share(x, bias, rows, columns, global_thread(), all_threads());
}

__global__ void relu_kernel(float* x, std::int64_t count) {
    relu_share(x, count, global_thread(), all_threads());
}

__global__ void relu_gradient_kernel(float* gradient, const float* activation, std::int64_t count) {
    relu_gradient_share(gradient, activation, count, global_thread(), all_threads());
}

__global__ void column_sums_kernel(float* sums, const float* x, std::int64_t rows,
                                   std::int64_t columns, bool accumulate) {
    column_sums_share(sums, x, rows, columns, accumulate, global_thread(), all_threads());
}

__global__ void cross_entropy_kernel(CrossEntropyCall call) {
    cross_entropy_share(call, global_thread(), all_threads());
}

__global__ void sgd_kernel(SgdCall call) {
    sgd_share(call, global_thread(), all_threads());
}

}  // namespace

void launch_gather(cudaStream_t stream, const GatherCall& call) {
    if (call.rows > 0) {
        gather_kernel<<<striding_blocks(call.rows * call.width, block_threads), block_threads, 0,
                        stream>>>(call);
        check_launch("gather_kernel");
    }
}

void launch_add_bias(cudaStream_t stream, float* x, const float* bias, std::int64_t rows,
                     std::int64_t columns) {
    if (rows > 0) {
        add_bias_kernel<<<striding_blocks(rows * columns, block_threads), block_threads, 0,
                          stream>>>(x, bias, rows, columns);
        check_launch("add_bias_kernel");
    }
}

void launch_relu(cudaStream_t stream, float* x, std::int64_t count) {
    if (count > 0) {
        relu_kernel<<<striding_blocks(count, block_threads), block_threads, 0, stream>>>(x, count);
        check_launch("relu_kernel");
    }
}

void launch_relu_gradient(cudaStream_t stream, float* gradient, const float* activation,
                          std::int64_t count) {
    if (count > 0) {
        relu_gradient_kernel<<<striding_blocks(count, block_threads), block_threads, 0, stream>>>(
            gradient, activation, count);
        check_launch("relu_gradient_kernel");
    }
}

void launch_column_sums(cudaStream_t stream, float* sums, const float* x, std::int64_t rows,
                        std::int64_t columns, bool accumulate) {
    column_sums_kernel<<<striding_blocks(columns, row_block_threads), row_block_threads, 0,
                         stream>>>(sums, x, rows, columns, accumulate);
    check_launch("column_sums_kernel");
}

void launch_cross_entropy(cudaStream_t stream, const CrossEntropyCall& call) {
    if (call.rows > 0) {
        cross_entropy_kernel<<<striding_blocks(call.rows, row_block_threads), row_block_threads, 0,
                               stream>>>(call);
        check_launch("cross_entropy_kernel");
    }
}

void launch_sgd(cudaStream_t stream, const SgdCall& call) {
    if (call.count > 0) {
        sgd_kernel<<<striding_blocks(call.count, block_threads), block_threads, 0, stream>>>(call);
        check_launch("sgd_kernel");
    }
}

}  // namespace bucketwise
