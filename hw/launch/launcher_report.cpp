#include "hw/launch/launcher_report.h"

#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <ctime>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hw/launch/rank_identity.h"

namespace bucketwise {
namespace {

std::optional<int> descriptor_from_environment() {
    const std::string text = environment_variable("BUCKETWISE_REPORT_FD").value_or("");
    int descriptor = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), descriptor);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && descriptor > STDERR_FILENO ? std::optional(descriptor) : std::nullopt;
}

// The variable reaches every process that a rank starts, the descriptor may not: the number could
// by then belong to anything.
bool is_write_end_of_pipe(int descriptor) {
    struct stat status {};
    const int flags = ::fcntl(descriptor, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) == O_WRONLY && ::fstat(descriptor, &status) == 0 &&
           S_ISFIFO(status.st_mode);
}

// One write of at most PIPE_BUF bytes is not torn by another thread's.
std::string line_of(std::string_view kind, std::string_view text) {
    std::string line = std::string(kind) + " " + std::string(text);
    if (line.size() > PIPE_BUF - 1) {
        std::size_t size = PIPE_BUF - 1;
        const auto continues = [](char c) {
            return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
        };
        while (size > 0 && continues(line[size])) {
            --size;  // not in the midst of a character of UTF-8
        }
        line.resize(size);
    }
    for (char& c : line) {
        if (c == '\n' || c == '\r' || c == '\0') {
            c = ' ';
        }
    }
    line.push_back('\n');
    return line;
}

// Holds SIGPIPE back from this thread: a launcher that has gone is no reason to die, but a handler
// or disposition is the program's, not ours to change.
class WithoutSigpipe {
  public:
    WithoutSigpipe() {
        ::sigset_t pending;
        ::sigpending(&pending);
        was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~WithoutSigpipe() {
        if (!was_pending_) {
            constexpr timespec at_once{};
            while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
            }
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    WithoutSigpipe(const WithoutSigpipe&) = delete;
    WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

  private:
    ::sigset_t pipe_{};
    ::sigset_t before_{};
    bool was_pending_ = false;
};

bool write_line(int descriptor, const std::string& line) {
    const WithoutSigpipe guard;
    ssize_t written = -1;
    do {
        written = ::write(descriptor, line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    return written >= 0 || errno != EAGAIN;
}

}  // namespace

LauncherReport::LauncherReport() {
    const std::optional<int> descriptor = descriptor_from_environment();
    if (descriptor && is_write_end_of_pipe(*descriptor)) {
        descriptor_ = *descriptor;
        ::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);  // what the rank starts is not the rank
    }
}

void LauncherReport::progress(const std::string& text) const {
    if (has_launcher()) {
        write_line(descriptor_, line_of("progress", text));
    }
}

void LauncherReport::failure(const std::string& reason, bool blames_peer) const {
    const std::string line = line_of(blames_peer ? "failure peer" : "failure own", reason);
    constexpr int patience_ms = 1000;
    if (has_launcher() && !write_line(descriptor_, line)) {
        pollfd room{descriptor_, POLLOUT, 0};
        ::poll(&room, 1, patience_ms);
        write_line(descriptor_, line);
    }
}

}  // namespace bucketwise
