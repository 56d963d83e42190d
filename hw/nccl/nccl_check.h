// Return codes of NCCL as exceptions, as hw/gpu/runtime/gpu_check.h has it for CUDA.
#pragma once

#include <nccl.h>

#include "hw/gpu/runtime/gpu_check.h"

namespace bucketwise {

// NCCL reports a peer that is gone as a remote or system error: these throw PeerFailure, all others
// GpuError. `communicator` may be null.
void check_nccl(ncclResult_t result, const char* call, ncclComm_t communicator,
                const CallPlace& place = CallPlace::current());

}  // namespace bucketwise
