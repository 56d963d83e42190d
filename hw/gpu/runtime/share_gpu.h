// Several ranks on one GPU: what NCCL has to be told so that it does not refuse.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bucketwise {

// Thread blocks of one collective where nothing else is asked for: the ranks' kernels share one GPU
// with each other and with their computing.
constexpr std::int64_t share_gpu_ctas = 4;

// Environment variables for a rank, each to be set only where the user has not. NCCL refuses two
// ranks of one host on one GPU, so every rank passes for a host of its own (NCCL_HOSTID); then only
// the network is left between them: plain sockets on `interface`.
std::vector<std::pair<std::string, std::string>> share_gpu_environment(
    int rank, const std::string& interface);

// Before NCCL is first called in this process, and before other threads are started.
void apply_environment(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace bucketwise
