// A rank's training on a GPU: products through cuBLAS and kernels of our own on a compute stream,
// NCCL's all-reduces on a communication stream, events between them.
#pragma once

#include <memory>

#include "hw/nccl/gpu_messages.h"
#include "hw/training/training_device.h"

namespace bucketwise {

// `communicators` is kept by reference.
std::unique_ptr<TrainingDevice> gpu_training_device(Communicators& communicators);

}  // namespace bucketwise
