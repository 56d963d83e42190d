// A GPU's devices beside those that replay steps.
#pragma once

#include <memory>

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/training/training_device.h"

namespace bucketwise {

// BatchNorm's passes: our own kernels and NCCL's collectives, all on one stream. Nothing could run
// beside a collective that everything after it waits for, so it gets no stream of its own and no
// events: PyTorch, which puts it on NCCL's stream, pays for two events more. `communicators` is
// kept by reference.
std::unique_ptr<BatchNormDevice> gpu_batch_norm(Communicators& communicators);

// A rank's training: products through cuBLAS and kernels of our own on a compute stream, NCCL's
// all-reduces on a communication stream, events between them. `communicators` is kept by reference.
std::unique_ptr<TrainingDevice> gpu_training_device(Communicators& communicators);

}  // namespace bucketwise
