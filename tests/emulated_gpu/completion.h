// Something that happens once, that threads can wait for, and when it happened.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bucketwise::emulated {

// std::atomic::wait and condition variables share state between all their users, which
// ThreadSanitizer would take for synchronisation between streams. The kernel's own primitive is
// invisible to it.
void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value);
void wake_all(std::atomic<std::uint32_t>& word);

class Completion {
  public:
    void complete();
    void wait() const;
    // Only a true answer orders the caller after complete().
    [[nodiscard]] bool is_complete() const;
    // Only when complete.
    [[nodiscard]] std::chrono::steady_clock::time_point time() const { return time_; }

  private:
    mutable std::atomic<std::uint32_t> complete_{0};
    std::chrono::steady_clock::time_point time_;
};

// Lives until the process ends. To free it would take a reference count, whose atomic updates
// would order threads that only share the count.
Completion& new_completion();

}  // namespace bucketwise::emulated
