// One thread that runs a rank's collectives one after another in launch order, like the worker of
// PyTorch's process group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bucketwise {

class CommunicationThread {
  public:
    // Keeps off the processor of the rank's transport thread, see hw/launch/processor_affinity.h.
    explicit CommunicationThread(int rank);
    // Waits for the collective that is running; those behind it are dropped.
    ~CommunicationThread();
    CommunicationThread(const CommunicationThread&) = delete;
    CommunicationThread& operator=(const CommunicationThread&) = delete;

    using Job = std::function<void()>;
    using Ticket = std::size_t;

    // Forgets all earlier tickets. Precondition (asserted): every one of them has been waited for.
    void restart();
    Ticket launch(Job job);
    // Returns once the job has ended. Rethrows what it, or one before it, threw.
    void wait(Ticket ticket);
    [[nodiscard]] bool has_begun(Ticket ticket) const;
    // Also when a failure means that it never will.
    [[nodiscard]] bool has_ended(Ticket ticket) const;
    // When a job that has been waited for began and ended.
    struct Times {
        std::chrono::steady_clock::time_point begin;
        std::chrono::steady_clock::time_point end;
    };
    [[nodiscard]] Times times(Ticket ticket) const;

  private:
    void serve(int rank);

    mutable std::mutex mutex_;
    std::condition_variable launched_;
    std::condition_variable ended_;
    std::deque<Job> jobs_;
    std::vector<Times> times_;  // of the jobs that have ended, by ticket
    Ticket next_ticket_ = 0;
    std::size_t begun_ = 0;
    std::exception_ptr failure_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace bucketwise
