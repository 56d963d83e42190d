// A thread that runs what it is given, in order.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace bucketwise::emulated {

// The order that ThreadSanitizer sees: push() before the work, the work before a wait() for it, and
// nothing else. A queue behind a mutex would also order a piece of work before the next push(), and
// so hide that nobody waited for it.
//
// Never freed: the thread is detached and may be stuck in a collective when the process exits.
class Worker {
  public:
    // Counts what was pushed; wraps around.
    using Ticket = std::uint32_t;

    Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // One caller at a time for push(), stop() and issued().
    void push(std::function<void()> work);
    // The thread ends after all that was pushed before.
    void stop() { push(nullptr); }
    [[nodiscard]] Ticket issued() const { return issued_.load(std::memory_order_relaxed); }

    // Whether everything up to `ticket` has been done. Only a true answer orders the caller.
    [[nodiscard]] bool has_finished(Ticket ticket) const;
    void wait(Ticket ticket) const;

  private:
    struct Item {
        std::function<void()> work;
        std::atomic<Item*> next{nullptr};
    };

    void serve();

    Item* tail_;  // of who pushes
    Item* head_;  // of the thread: done already, its `next` is the next to do
    std::atomic<Ticket> issued_{0};
    std::atomic<Ticket> finished_{0};
};

}  // namespace bucketwise::emulated
