// BatchNorm's passes on a CPU: one thread computes and, as nothing could go on meanwhile,
// communicates.
#pragma once

#include <memory>

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

// Made and used by one thread. `communicator` is kept by reference.
std::unique_ptr<BatchNormDevice> cpu_batch_norm(Communicator& communicator);

}  // namespace bucketwise
