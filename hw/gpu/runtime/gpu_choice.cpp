#include "hw/gpu/runtime/gpu_choice.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <map>
#include <system_error>

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

std::vector<std::pair<std::string, std::string>> share_gpu_environment(
    int rank, const std::string& interface) {
    return {{"NCCL_HOSTID", "bucketwise-rank-" + std::to_string(rank)},
            {"NCCL_NET", "Socket"},
            {"NCCL_NET_PLUGIN", "none"},
            {"NCCL_SOCKET_IFNAME", interface.empty() ? "lo" : interface},
            {"NCCL_MNNVL_ENABLE", "0"},
            {"NCCL_NVLS_ENABLE", "0"},
            {"NCCL_RAS_ENABLE", "0"},
            {"NCCL_ALGO", "Ring"},
            {"NCCL_PROTO", "Simple"}};
}

void apply_environment(const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const auto& [name, value] : variables) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): before other threads are started
        if (::setenv(name.c_str(), value.c_str(), 0) != 0) {
            throw std::system_error(errno, std::generic_category(), "setenv " + name);
        }
    }
}

}  // namespace bucketwise
