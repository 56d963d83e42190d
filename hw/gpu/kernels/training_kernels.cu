#include "hw/gpu/kernels/kernels.h"

#include "hw/gpu/kernels/launch.h"

namespace bucketwise {
namespace {

// For passes whose threads take whole rows or columns: there are few, so small blocks reach more
// multiprocessors.
constexpr int row_block_threads = 32;

template <typename Pass>
__global__ void training_kernel(Pass pass) {
    pass(global_thread(), all_threads());
}

template <typename Pass>
void launch(cudaStream_t stream, const Pass& pass) {
    constexpr int threads = requires {
        Pass::has_long_shares;
    }
    ? row_block_threads : block_threads;
    if (pass.work() > 0) {
        const unsigned blocks = striding_blocks(pass.work(), threads);
        training_kernel<<<blocks, threads, 0, stream>>>(pass);
        check_launch(Pass::kernel);
    }
}

}  // namespace

void launch_training(cudaStream_t stream, const TrainingPass& pass) {
    std::visit([stream](const auto& one) { launch(stream, one); }, pass);
}

}  // namespace bucketwise
