#include "hw/record/environment.h"

#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "hw/launch/processor_affinity.h"

namespace bucketwise {
namespace {

// Linux lists the model under "model name" on x86 and not at all on most Arm machines.
std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
        const std::size_t colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
    }
    return "unknown";
}

std::string kernel_name() {
    struct utsname name {};
    if (::uname(&name) != 0) {
        return "unknown";
    }
    return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

std::string compiler_name() {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "g++ " __VERSION__;
#endif
}

}  // namespace

Environment read_environment() {
    return {.cpu = cpu_model(),
            .cores = std::thread::hardware_concurrency(),
            .kernel = kernel_name(),
            .compiler = compiler_name(),
            .gpu_libraries = {},  // known to the backend for GPUs only
            .scheduling = affinity_of_threads()};
}

// Not ru_maxrss: a process that a large launcher forked inherits the launcher's.
std::int64_t peak_memory_bytes() {
    std::ifstream status("/proc/self/status");
    const std::string key = "VmHWM:";
    std::string line;
    while (std::getline(status, line)) {
        if (line.rfind(key, 0) == 0) {
            constexpr std::int64_t bytes_per_kib = 1024;  // "kB" means KiB there
            return bytes_per_kib * std::strtoll(line.c_str() + key.size(), nullptr, 10);
        }
    }
    return 0;
}

std::string utc_now() {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace bucketwise
