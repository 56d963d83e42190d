// BatchNorm's passes on a GPU: our own kernels and NCCL's collectives, all on one stream.
//
// Nothing could run beside a collective that everything after it waits for, so it gets no stream of
// its own and no events: PyTorch, which puts it on NCCL's stream, pays for two events more.
#pragma once

#include <memory>

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/nccl/gpu_messages.h"

namespace bucketwise {

// `communicators` is kept by reference.
std::unique_ptr<BatchNormDevice> gpu_batch_norm(Communicators& communicators);

}  // namespace bucketwise
