#include <cuda_runtime_api.h>
#include <nccl.h>

#include "hw/record/gpu_libraries.h"

namespace bucketwise {
namespace {

// CUDA counts 1000 major + 10 minor, NCCL since 2.9 10000 major + 100 minor + patch.
std::string cuda_version() {
    int version = 0;
    return cudaRuntimeGetVersion(&version) != cudaSuccess
               ? "of unknown version"
               : std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string nccl_version() {
    int version = 0;
    return ncclGetVersion(&version) != ncclSuccess
               ? "of unknown version"
               : std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) +
                     "." + std::to_string(version % 100);
}

}  // namespace

std::string gpu_libraries() {
    return "CUDA runtime " + cuda_version() + ", NCCL " + nccl_version();
}

}  // namespace bucketwise
