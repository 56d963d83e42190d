#include "hw/environment.h"

#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "hw/gpu_libraries.h"
#include "hw/scheduling.h"

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
    return {cpu_model(),     std::thread::hardware_concurrency(),
            kernel_name(),   compiler_name(),
            gpu_libraries(), scheduling_of_threads()};
}

std::string utc_now() {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace bucketwise
