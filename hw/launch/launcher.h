// Starts the ranks of one job as processes of this machine, watches them, and ends them all when
// one dies, hangs, or the user interrupts.
//
// Each rank is the leader of a process group of its own. Ctrl-C and Ctrl-Z in a terminal therefore
// reach the launcher alone, which ends, stops or continues the ranks: an interruption is never
// reported as a rank's fault. Ranks read nothing (standard input is /dev/null), share standard
// output and standard error with the launcher, and inherit no other descriptor but the one they
// report through.
#pragma once

#include <functional>
#include <optional>

#include "hw/launch/launcher_process.h"

namespace bucketwise {

// Returns once every rank has ended: nothing if all of them ended well. Whatever happens, no rank
// is left behind: not when this throws, and not when this process is killed. Processes that a rank
// has started are killed with it, except when the launcher itself is killed.
//
// SIGINT, SIGTERM and SIGHUP interrupt the launch, unless they are ignored when it begins (nohup);
// the caller's dispositions are back in place when it returns. So one launch at a time, by one
// thread.
//
// `on_progress` is called for each line that a rank reports; may be empty. Throws
// std::runtime_error when a process cannot be started.
std::optional<LaunchFailure> launch_ranks(
    const LaunchRequest& request, const std::function<void(const LaunchProgress&)>& on_progress);

}  // namespace bucketwise
