// A CPU's devices beside those that replay steps. One thread computes; for training another
// communicates.
#pragma once

#include <memory>

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/rank/communicator.h"
#include "hw/training/training_device.h"

namespace bucketwise {

// BatchNorm's passes. As nothing could go on meanwhile, the thread that computes communicates, too.
// Made and used by one thread. `communicator` is kept by reference.
std::unique_ptr<BatchNormDevice> cpu_batch_norm(Communicator& communicator);

// A rank's training, through Eigen. `communicator` is kept by reference and used by one other
// thread.
std::unique_ptr<TrainingDevice> cpu_training_device(Communicator& communicator);

}  // namespace bucketwise
