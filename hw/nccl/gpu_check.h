// Return codes of CUDA, cuBLAS and NCCL as exceptions that name the call, its place and what the
// library says. Who the rank is says whoever reports the exception.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace bucketwise {

class GpuError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// `call`: what was called, for the message. Throw GpuError.
void check_gpu(cudaError_t result, const char* call,
               const std::source_location& place = std::source_location::current());
void check_gpu(cublasStatus_t result, const char* call,
               const std::source_location& place = std::source_location::current());
// NCCL reports a peer that is gone as a remote or system error: these throw PeerFailure.
// `communicator` may be null.
void check_gpu(ncclResult_t result, const char* call, ncclComm_t communicator,
               const std::source_location& place = std::source_location::current());

}  // namespace bucketwise
