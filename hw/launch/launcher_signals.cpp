#include "hw/launch/launcher_signals.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#include <unistd.h>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

constexpr std::array interrupts{SIGINT, SIGTERM, SIGHUP};

// A handler reaches only globals. A flag for each signal, because a byte written into a full pipe
// would be lost; the byte only wakes.
std::array<std::atomic<bool>, NSIG> arrived;
std::atomic<int> woken_descriptor{-1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

std::atomic<bool>& arrived_flag(int signal) {
    return arrived[static_cast<std::size_t>(signal)];
}

extern "C" void note_signal(int signal) {
    const int errno_before = errno;
    arrived_flag(signal) = true;
    const char byte = 0;
    [[maybe_unused]] const ssize_t written = ::write(woken_descriptor, &byte, 1);
    errno = errno_before;
}

void install_handler(int signal) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;  // what on_progress writes is not cut short
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

}  // namespace

LauncherSignals::LauncherSignals() {
    Pipe pipe = open_pipe();
    wake_read_ = std::move(pipe.read);
    wake_write_ = std::move(pipe.write);
    invariant(woken_descriptor.exchange(wake_write_.get()) == -1, "one launch at a time");
    for (std::atomic<bool>& flag : arrived) {
        flag = false;
    }
    ::sigset_t unblocked;
    ::sigemptyset(&unblocked);
    for (std::size_t i = 0; i < handled.size(); ++i) {
        ::sigaction(handled[i], nullptr, &before_[i]);
        // nohup and a shell's background jobs ignore signals so that they do not end the program.
        if (before_[i].sa_handler != SIG_IGN || handled[i] == SIGCHLD) {
            install_handler(handled[i]);
        }
        ::sigaddset(&unblocked, handled[i]);
    }
    ::pthread_sigmask(SIG_UNBLOCK, &unblocked, &mask_before_);
}

LauncherSignals::~LauncherSignals() {
    for (std::size_t i = 0; i < handled.size(); ++i) {
        ::sigaction(handled[i], &before_[i], nullptr);
    }
    woken_descriptor = -1;
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    while (const std::optional<int> interrupt = take_interrupt()) {
        ::raise(*interrupt);
    }
}

void LauncherSignals::clear_wake() {
    std::array<char, 256> bytes{};
    while (::read(wake_read_.get(), bytes.data(), bytes.size()) > 0) {
    }
}

std::optional<int> LauncherSignals::take_interrupt() {
    for (const int signal : interrupts) {
        if (take(signal)) {
            return signal;
        }
    }
    return std::nullopt;
}

bool LauncherSignals::take(int signal) {
    return arrived_flag(signal).exchange(false);
}

void LauncherSignals::suspend_here() {
    // Not SIGSTOP: the kernel lets SIGTSTP pass where nobody could continue this process.
    struct sigaction stop {};
    stop.sa_handler = SIG_DFL;
    ::sigemptyset(&stop.sa_mask);
    ::sigaction(SIGTSTP, &stop, nullptr);
    ::raise(SIGTSTP);
    install_handler(SIGTSTP);
}

}  // namespace bucketwise
