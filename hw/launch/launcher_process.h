// One rank as a process of this machine: started, listened to, ended.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "hw/launch/launcher_descriptor.h"

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

struct ProcessStop {
    std::optional<int> signal;  // none: it goes on
};

struct ProcessEnd {
    bool killed = false;
    int value = 0;  // the signal that killed it, or the exit status
};

struct RankReport {
    enum class Kind { progress, own_failure, peer_failure, other };
    Kind kind = Kind::other;  // other: a sign of life that says nothing else
    std::string text;
};

class RankProcess {
  public:
    // `job` goes into BUCKETWISE_LAUNCHER. Throws std::runtime_error if there can be no such
    // process; if it cannot become the command, take_reports() throws.
    RankProcess(const LaunchRequest& request, int rank, const std::string& job);
    ~RankProcess();  // kills it, and returns once it has ended
    RankProcess(const RankProcess&) = delete;
    RankProcess& operator=(const RankProcess&) = delete;

    [[nodiscard]] bool running() const { return pid_ > 0; }
    // -1 once the rank can report nothing more.
    [[nodiscard]] int report_descriptor() const { return report_.get(); }

    // The three below do not wait, and tell each thing once.

    std::optional<ProcessStop> take_stop();

    // Its own children are killed when it ends.
    std::optional<ProcessEnd> take_end();

    // Throws std::runtime_error when it was the attempt to start the command that failed.
    std::vector<RankReport> take_reports();

    // Sends it to the rank and to what the rank has started.
    void send_signal(int signal) const;

  private:
    [[nodiscard]] std::optional<::siginfo_t> look(int options) const;
    [[nodiscard]] RankReport parse(const std::string& line) const;
    ProcessEnd reap();

    int rank_ = 0;
    std::string program_;
    ::pid_t pid_ = -1;  // -1 once it has been waited for: the number may then be another's
    Descriptor report_;
    std::string unfinished_line_;
};

}  // namespace bucketwise
