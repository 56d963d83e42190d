// The signals that concern a launch, while it lasts.
#pragma once

#include <array>
#include <optional>

#include <signal.h>

#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

// Handlers and a pipe that wakes poll(), rather than signalfd: a signal that another thread of the
// program takes would never reach a signalfd. At most one exists at a time.
class LauncherSignals {
  public:
    LauncherSignals();
    ~LauncherSignals();  // puts the dispositions back, and raises what nobody has taken
    LauncherSignals(const LauncherSignals&) = delete;
    LauncherSignals& operator=(const LauncherSignals&) = delete;

    [[nodiscard]] int wake_descriptor() const { return wake_read_.get(); }

    // Forgets what woke us; to be called before the processes are looked at.
    void clear_wake();

    std::optional<int> take_interrupt();  // SIGINT, SIGTERM or SIGHUP
    bool take(int signal);

    // Stops this process as SIGTSTP would have; returns once it goes on.
    void suspend_here();

  private:
    static constexpr std::array handled{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGCHLD};

    Descriptor wake_read_;
    Descriptor wake_write_;
    std::array<struct sigaction, handled.size()> before_{};
    ::sigset_t mask_before_{};
};

}  // namespace bucketwise
