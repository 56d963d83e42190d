// A rank's training on a CPU: one thread computes through Eigen, another communicates.
#pragma once

#include <memory>

#include "hw/rank/communicator.h"
#include "hw/training/training_device.h"

namespace bucketwise {

// `communicator` is kept by reference and used by one other thread.
std::unique_ptr<TrainingDevice> cpu_training_device(Communicator& communicator);

}  // namespace bucketwise
