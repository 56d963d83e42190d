// The machine this process runs on, as a measurement's provenance names it.
#pragma once

#include <cstdint>
#include <string>

namespace bucketwise {

struct Environment {
    std::string cpu;       // model name, or "unknown"
    unsigned cores = 0;    // that this process may use
    std::string kernel;    // name, release and architecture
    std::string compiler;  // that built this program
    std::string gpu_libraries;
    std::string scheduling;  // of ranks' threads: "threads kept apart" or "default"
    bool operator==(const Environment&) const = default;
};

Environment read_environment();

// The most that this process has had in memory so far (VmHWM); 0 where Linux does not tell.
std::int64_t peak_memory_bytes();

// The time of day in UTC, ISO 8601 to the second.
std::string utc_now();

}  // namespace bucketwise
