// Child processes of tests: what changes a process for good is done in one of its own.
#pragma once

#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

inline constexpr unsigned longest_child_seconds = 120;

// A child that runs `work` and exits with 0 if it returned true. It ends with its parent, and in
// any case soon.
inline ::pid_t start_child(const std::function<bool()>& work) {
    const ::pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(longest_child_seconds);
        ::_exit(work() ? 0 : 1);
    }
    return child;
}

inline bool ended_well(::pid_t child) {
    int status = -1;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

// A process that need not be a child, and whose number may be another's once it has ended.
class ProcessHandle {
  public:
    explicit ProcessHandle(::pid_t process)
        : handle_(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))) {}

    // Waits for its end, as long as a child may last.
    [[nodiscard]] bool ends() const {
        ::pollfd end{handle_.get(), POLLIN, 0};
        return handle_.is_open() && ::poll(&end, 1, longest_child_seconds * 1000) == 1;
    }

  private:
    Descriptor handle_;
};

inline constexpr ::uid_t nobody = 65534;

// Makes root an ordinary user, for good; leaves an ordinary user alone. A process that has just
// changed its user owns nothing in /proc before it says that it has nothing to hide, which a
// program that an ordinary user starts does not have to; and it would outlive its parent.
inline bool become_ordinary_user() {
    const bool became = ::getuid() != 0 ||
                        (::setgroups(0, nullptr) == 0 && ::setresgid(nobody, nobody, nobody) == 0 &&
                         ::setresuid(nobody, nobody, nobody) == 0);
    return became && ::prctl(PR_SET_DUMPABLE, 1) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

}  // namespace bucketwise
