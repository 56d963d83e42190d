#include "hw/gpu/runtime/share_gpu.h"

#include <stdlib.h>

#include <cerrno>
#include <system_error>

namespace bucketwise {

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
