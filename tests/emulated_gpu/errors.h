// The last error of each thread.
#pragma once

#include <cuda_runtime_api.h>

namespace bucketwise::emulated {

// Remembers `error` for cudaGetLastError() unless it is success, and returns it.
cudaError_t noted(cudaError_t error);

}  // namespace bucketwise::emulated
