#include "hw/gpu/runtime/gpu_choice.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "hw/gpu/runtime/gpu_check.h"
#include "sim/base/hash.h"

namespace bucketwise {
namespace {

int attribute_of(int gpu, cudaDeviceAttr attribute) {
    int value = 0;
    check_gpu(cudaDeviceGetAttribute(&value, attribute, gpu), "cudaDeviceGetAttribute");
    return value;
}

std::string bus_id_of(int gpu) {
    std::array<char, 64> text{};
    check_gpu(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), gpu),
              "cudaDeviceGetPCIBusId");
    return text.data();
}

// Differs between machines, and between starts of one.
std::string machine_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

// Whole numbers below 2^53 survive as doubles, which is what ranks exchange.
constexpr std::uint64_t exact_in_double = (std::uint64_t{1} << 53U) - 1;

}  // namespace

int visible_gpus() {
    int gpus = 0;
    const cudaError_t result = cudaGetDeviceCount(&gpus);
    if (result == cudaErrorNoDevice || (result == cudaSuccess && gpus == 0)) {
        throw GpuError("this machine shows no GPU (nvidia-smi -L, CUDA_VISIBLE_DEVICES)");
    }
    if (result == cudaErrorInsufficientDriver) {
        throw GpuError(
            "this machine has no NVIDIA driver, or one too old for the CUDA that "
            "bucketwise was built with (nvidia-smi)");
    }
    check_gpu(result, "cudaGetDeviceCount");
    return gpus;
}

int gpu_for(const RankIdentity& identity, int gpus, bool share_gpu) {
    if (identity.local_rank < gpus) {
        return identity.local_rank;
    }
    if (share_gpu) {
        return identity.local_rank % gpus;
    }
    if (gpus == 1) {
        return 0;
    }
    throw GpuError(
        fmt::format("expected a GPU for each of the {} ranks on this machine, or --share-gpu, got "
                    "{} GPUs",
                    identity.local_ranks, gpus));
}

std::string describe_gpu(int gpu) {
    cudaDeviceProp properties{};
    check_gpu(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
    int driver = 0;
    check_gpu(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    return fmt::format(
        "{}, {} GB, {} multiprocessors, compute capability {}.{}, driver for CUDA {}.{}{}",
        properties.name, std::llround(static_cast<double>(properties.totalGlobalMem) / 1e9),
        properties.multiProcessorCount, properties.major, properties.minor, driver / 1000,
        driver % 1000 / 10, attribute_of(gpu, cudaDevAttrMpsEnabled) != 0 ? ", through MPS" : "");
}

std::int64_t gpu_fingerprint(int gpu) {
    const std::uint64_t hash = fnv_hash(machine_id() + " " + bus_id_of(gpu));
    return static_cast<std::int64_t>((hash ^ (hash >> 53U)) & exact_in_double);
}

std::optional<std::pair<std::int64_t, std::int64_t>> ranks_of_one_gpu(
    const std::vector<std::int64_t>& fingerprints) {
    std::map<std::int64_t, std::int64_t> first;
    for (std::size_t i = 0; i < fingerprints.size(); ++i) {
        const auto rank = static_cast<std::int64_t>(i);
        const auto [earlier, is_new] = first.emplace(fingerprints[i], rank);
        if (!is_new) {
            return std::pair{earlier->second, rank};
        }
    }
    return std::nullopt;
}

void check_gpus_differ(ControlGroup& control, std::int64_t fingerprint) {
    const std::array own{static_cast<double>(fingerprint)};
    std::vector<std::int64_t> all;
    for (const double value : control.gather_to_first(own)) {
        all.push_back(static_cast<std::int64_t>(value));
    }
    // Rank 0 knows, and tells the others: twice the same if nobody shares.
    const auto found = ranks_of_one_gpu(all).value_or(std::pair<std::int64_t, std::int64_t>{});
    std::array<std::int64_t, 2> ranks{found.first, found.second};
    control.broadcast_from_first(ranks);
    if (ranks[0] != ranks[1]) {
        throw GpuError(fmt::format(
            "ranks {} and {} have the same GPU: expected one for each rank, or --share-gpu",
            ranks[0], ranks[1]));
    }
}

}  // namespace bucketwise
