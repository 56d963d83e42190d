// The element-wise passes of training as kernels of our own.
#pragma once

#include <cuda_runtime_api.h>

#include "hw/training/training_passes.h"

namespace bucketwise {

// Puts one launch on the stream, or none where there is nothing to do, and returns; what the pass
// touches is on the device. Throws GpuError when the launch fails.
void launch_training(cudaStream_t stream, const TrainingPass& pass);

}  // namespace bucketwise
