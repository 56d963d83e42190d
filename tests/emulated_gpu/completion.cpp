#include "tests/emulated_gpu/completion.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <deque>
#include <mutex>

namespace bucketwise::emulated {
namespace {

void futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
    static_assert(sizeof(word) == sizeof(std::uint32_t));
    ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

}  // namespace

void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    futex(word, FUTEX_WAIT_PRIVATE, value);
}

void wake_all(std::atomic<std::uint32_t>& word) {
    futex(word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void Completion::complete() {
    time_ = std::chrono::steady_clock::now();
    complete_.store(1, std::memory_order_release);
    wake_all(complete_);
}

void Completion::wait() const {
    while (complete_.load(std::memory_order_acquire) == 0) {
        sleep_while(complete_, 0);
    }
}

bool Completion::is_complete() const {
    return complete_.load(std::memory_order_acquire) != 0;
}

Completion& new_completion() {
    static auto& mutex = *new std::mutex;
    static auto& all = *new std::deque<Completion>;
    const std::lock_guard lock(mutex);
    return all.emplace_back();
}

}  // namespace bucketwise::emulated
