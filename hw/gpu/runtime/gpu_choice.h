// The choice of a rank's GPU, the check that ranks do not share one, and the settings that make
// NCCL let them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hw/launch/rank_identity.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

// The rank's GPU among this process's, 0 <= GPU < gpus. A rank takes the GPU of its number on this
// machine. Where only one is visible, that may be a launcher's doing (srun --gpus-per-task=1), so
// it is taken; whether another rank has it too is seen later. Throws GpuError when there are too
// few.
int gpu_for(const RankIdentity& identity, int gpus, bool share_gpu);

// How many there are for this process. Throws GpuError when there is none, or no driver.
int visible_gpus();

// Such as "NVIDIA H200, 141 GB, 132 multiprocessors, compute capability 9.0, driver for CUDA 13.0".
std::string describe_gpu(int gpu);

// A number for GPU `gpu` of this process, below 2^53, that is the same for all ranks of one
// physical GPU and differs between GPUs, also those of other machines. Throws GpuError.
std::int64_t gpu_fingerprint(int gpu);

// The first two ranks of equal fingerprints, which are by rank; none: all differ.
std::optional<std::pair<std::int64_t, std::int64_t>> ranks_of_one_gpu(
    const std::vector<std::int64_t>& fingerprints);

// Collective. Throws GpuError on every rank if two of them have one GPU.
void check_gpus_differ(ControlGroup& control, std::int64_t fingerprint);

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
