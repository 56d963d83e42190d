// The kernels of training on the host: the same bodies as on a GPU, thread after thread, in stream
// order.
#include "hw/gpu/kernels/training_kernels.h"

#include <functional>
#include <utility>

#include "hw/gpu/runtime/gpu_check.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace bucketwise {
namespace {

using emulated::alias;

// No divisor of anything, so that strides and ragged ends are gone through.
constexpr std::int64_t grid_threads = 97;

// Runs share(thread, threads) for each thread. As a launch does, it reports what went wrong before,
// too.
template <typename Share>
void enqueue(cudaStream_t stream, const Share& share) {
    emulated::enqueue(stream, [share] {
        for (std::int64_t thread = 0; thread < grid_threads; ++thread) {
            share(thread, grid_threads);
        }
    });
    check_gpu(cudaGetLastError(), "launch");
}

}  // namespace

void launch_gather(cudaStream_t stream, const GatherCall& call) {
    enqueue(stream, [call](std::int64_t thread, std::int64_t threads) {
        GatherCall here = call;
        here.to = alias(call.to);
        here.images = alias(call.images);
        here.order = alias(call.order);
        gather_share(here, thread, threads);
    });
}

void launch_add_bias(cudaStream_t stream, float* x, const float* bias, std::int64_t rows,
                     std::int64_t columns) {
    enqueue(stream, [=](std::int64_t thread, std::int64_t threads) {
        add_bias_share(alias(x), alias(bias), rows, columns, thread, threads);
    });
}

void launch_relu(cudaStream_t stream, float* x, std::int64_t count) {
    enqueue(stream, [=](std::int64_t thread, std::int64_t threads) {
        relu_share(alias(x), count, thread, threads);
    });
}

void launch_relu_gradient(cudaStream_t stream, float* gradient, const float* activation,
                          std::int64_t count) {
    enqueue(stream, [=](std::int64_t thread, std::int64_t threads) {
        relu_gradient_share(alias(gradient), alias(activation), count, thread, threads);
    });
}

void launch_column_sums(cudaStream_t stream, float* sums, const float* x, std::int64_t rows,
                        std::int64_t columns, bool accumulate) {
    enqueue(stream, [=](std::int64_t thread, std::int64_t threads) {
        column_sums_share(alias(sums), alias(x), rows, columns, accumulate, thread, threads);
    });
}

void launch_cross_entropy(cudaStream_t stream, const CrossEntropyCall& call) {
    enqueue(stream, [call](std::int64_t thread, std::int64_t threads) {
        CrossEntropyCall here = call;
        here.logits = alias(call.logits);
        here.gradient = alias(call.gradient);
        here.losses = alias(call.losses);
        here.correct = alias(call.correct);
        here.labels = alias(call.labels);
        here.order = alias(call.order);
        cross_entropy_share(here, thread, threads);
    });
}

void launch_sgd(cudaStream_t stream, const SgdCall& call) {
    enqueue(stream, [call](std::int64_t thread, std::int64_t threads) {
        SgdCall here = call;
        here.parameters = alias(call.parameters);
        here.gradients = alias(call.gradients);
        here.moments = alias(call.moments);
        sgd_share(here, thread, threads);
    });
}

}  // namespace bucketwise
