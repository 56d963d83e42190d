// What a launch is asked for, and what it tells.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bucketwise {

struct LaunchRequest {
    std::vector<std::string> command;  // argv of every rank; argv[0] is a path
    // Added to the environment of every rank beside RANK, WORLD_SIZE, LOCAL_RANK and
    // LOCAL_WORLD_SIZE, as torchrun sets them, and BUCKETWISE_LAUNCHER, which names the job.
    std::vector<std::pair<std::string, std::string>> variables;
    int ranks = 1;
    // A rank that is stopped, or that has reported nothing, for so long is taken for hung.
    std::chrono::milliseconds deadline{60'000};
    // Called in the child after fork and before exec, so it may only do what a signal handler may:
    // system calls, no allocation, no locks. False, with errno set, fails the launch. May be empty.
    std::function<bool(int rank)> before_exec;
};

struct LaunchProgress {
    int rank = 0;
    std::string text;
};

struct LaunchFailure {
    std::optional<int> rank;  // none: nobody in particular, as when the user interrupted
    // One line. Reads on after "rank N " if there is a rank: "was killed by signal 9 (Killed)",
    // "failed: no memory". Without one it stands alone: "interrupted by signal 2 (Interrupt)".
    std::string reason;
    bool interrupted = false;
};

}  // namespace bucketwise
