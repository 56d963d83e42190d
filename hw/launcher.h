// Starts the ranks of one job as processes of this machine, watches them, and ends them all when
// one dies, hangs, or the user interrupts.
//
// Each rank is the leader of a process group of its own. Ctrl-C and Ctrl-Z in a terminal therefore
// reach the launcher alone, which ends, stops or continues the ranks: what it reports as
// interrupted was not a rank's fault. Ranks read nothing (standard input is /dev/null), share
// standard output and standard error with the launcher, and inherit no other descriptor but the
// one they report through.
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

// Returns once every rank has ended: nothing if all of them ended well. Whatever happens, no rank
// is left behind: not when this throws, and not when this process is killed. What a rank has
// itself started is killed with it, except when it was the launcher that got killed.
//
// SIGINT, SIGTERM and SIGHUP interrupt the launch, unless they are ignored when it begins (nohup);
// the caller's dispositions are back in place when it returns. So one launch at a time, by one
// thread.
//
// `on_progress` is called for each line that a rank reports; may be empty. Throws
// std::runtime_error when a process cannot be started.
std::optional<LaunchFailure> launch_ranks(
    const LaunchRequest& request, const std::function<void(const LaunchProgress&)>& on_progress);

// The rank's side: what it tells the launcher. Does nothing when none is listening.
//
// Each report is one line, "progress TEXT", "failure own TEXT" or "failure peer TEXT", in the pipe
// whose descriptor is in BUCKETWISE_REPORT_FD. Line breaks in TEXT become spaces, and what exceeds
// an atomic write is cut off. Any thread may report.
class LauncherReport {
  public:
    LauncherReport();  // finds the launcher by the environment

    [[nodiscard]] bool has_launcher() const { return descriptor_ >= 0; }

    // Never waits: lost if the launcher does not keep up.
    void progress(const std::string& text) const;

    // Why this rank is about to end. `blames_peer`: the reason lies with another rank, so the
    // launcher looks for a better one first.
    void failure(const std::string& reason, bool blames_peer) const;

  private:
    int descriptor_ = -1;
};

}  // namespace bucketwise
