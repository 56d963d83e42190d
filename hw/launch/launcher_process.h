// One rank as a process of this machine: started, listened to, ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "hw/launch/launch_request.h"
#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

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

    // What it has started itself is killed when it ends.
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
