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

Gather aliased(Gather pass) {
    pass.to = alias(pass.to);
    pass.images = alias(pass.images);
    pass.order = alias(pass.order);
    return pass;
}

AddBias aliased(AddBias pass) {
    pass.x = alias(pass.x);
    pass.bias = alias(pass.bias);
    return pass;
}

Relu aliased(Relu pass) {
    pass.x = alias(pass.x);
    return pass;
}

ReluGradient aliased(ReluGradient pass) {
    pass.gradient = alias(pass.gradient);
    pass.activation = alias(pass.activation);
    return pass;
}

ColumnSums aliased(ColumnSums pass) {
    pass.sums = alias(pass.sums);
    pass.x = alias(pass.x);
    return pass;
}

CrossEntropy aliased(CrossEntropy pass) {
    pass.logits = alias(pass.logits);
    pass.gradient = alias(pass.gradient);
    pass.losses = alias(pass.losses);
    pass.correct = alias(pass.correct);
    pass.labels = alias(pass.labels);
    pass.order = alias(pass.order);
    return pass;
}

SgdStep aliased(SgdStep pass) {
    pass.parameters = alias(pass.parameters);
    pass.gradients = alias(pass.gradients);
    pass.moments = alias(pass.moments);
    return pass;
}

}  // namespace

// As a launch does, it reports what went wrong before, too.
void launch_training(cudaStream_t stream, const TrainingPass& pass) {
    std::visit(
        [stream](const auto& on_device) {
            emulated::enqueue(stream, [on_device] {
                const auto one = aliased(on_device);
                for (std::int64_t thread = 0; thread < grid_threads; ++thread) {
                    one(thread, grid_threads);
                }
            });
        },
        pass);
    check_gpu(cudaGetLastError(), "launch");
}

}  // namespace bucketwise
