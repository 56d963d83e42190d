// The backend for NVIDIA GPUs: CUDA kernels and cuBLAS on one, NCCL between several. Ranks meet
// through Gloo.
#pragma once

#include "hw/backend/backend.h"

namespace bucketwise {

// One that refuses every request and says why, if this program was built without.
const Backend& nccl_backend();

}  // namespace bucketwise
