#include "tests/emulated_gpu/worker.h"

#include <pthread.h>
#include <signal.h>

#include <memory>
#include <thread>
#include <utility>

#include "tests/emulated_gpu/completion.h"

namespace bucketwise::emulated {
namespace {

// The program's handlers run on the program's threads.
class NoSignals {
  public:
    NoSignals() {
        sigset_t set;
        ::sigfillset(&set);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
            ::sigdelset(&set, fault);
        }
        ::pthread_sigmask(SIG_SETMASK, &set, &before_);
    }
    ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;
    NoSignals& operator=(const NoSignals&) = delete;

  private:
    sigset_t before_{};
};

}  // namespace

Worker::Worker() : tail_(new Item), head_(tail_) {
    const NoSignals inherited;
    std::thread([this] { serve(); }).detach();
}

void Worker::push(std::function<void()> work) {
    Item* item = new Item;
    item->work = std::move(work);
    tail_->next.store(item, std::memory_order_release);
    tail_ = item;
    issued_.store(issued() + 1, std::memory_order_release);
    wake_all(issued_);
}

bool Worker::has_finished(Ticket ticket) const {
    const auto reached = [&](std::memory_order order) {
        return static_cast<std::int32_t>(finished_.load(order) - ticket) >= 0;
    };
    return reached(std::memory_order_relaxed) && reached(std::memory_order_acquire);
}

void Worker::wait(Ticket ticket) const {
    while (!has_finished(ticket)) {
        const Ticket finished = finished_.load(std::memory_order_relaxed);
        if (static_cast<std::int32_t>(finished - ticket) < 0) {
            sleep_while(finished_, finished);
        }
    }
}

void Worker::serve() {
    for (Ticket finished = 0;; ++finished) {
        while (issued_.load(std::memory_order_acquire) == finished) {
            sleep_while(issued_, finished);
        }
        Item* item = head_->next.load(std::memory_order_acquire);
        delete std::exchange(head_, item);
        const std::function<void()> work = std::exchange(item->work, nullptr);
        if (work) {
            work();
        }
        finished_.store(finished + 1, std::memory_order_release);
        wake_all(finished_);
        if (!work) {
            return;
        }
    }
}

}  // namespace bucketwise::emulated
