#include "hw/rank/communication_thread.h"

#include <utility>

#include "hw/launch/processor_affinity.h"
#include "sim/base/invariant.h"

namespace bucketwise {

CommunicationThread::CommunicationThread(int rank) : thread_([this, rank] { serve(rank); }) {}

CommunicationThread::~CommunicationThread() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    launched_.notify_one();
    thread_.join();
}

void CommunicationThread::restart() {
    const std::lock_guard lock(mutex_);
    invariant(jobs_.empty() && times_.size() == next_ticket_, "every collective has ended");
    times_.clear();
    next_ticket_ = 0;
    begun_ = 0;
}

CommunicationThread::Ticket CommunicationThread::launch(Job job) {
    Ticket ticket = 0;
    {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
        ticket = next_ticket_++;
    }
    launched_.notify_one();
    return ticket;
}

void CommunicationThread::wait(Ticket ticket) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return times_.size() > ticket || failure_; });
    if (times_.size() <= ticket) {
        std::rethrow_exception(failure_);
    }
}

bool CommunicationThread::has_begun(Ticket ticket) const {
    const std::lock_guard lock(mutex_);
    return begun_ > ticket;
}

bool CommunicationThread::has_ended(Ticket ticket) const {
    const std::lock_guard lock(mutex_);
    return times_.size() > ticket || failure_;
}

CommunicationThread::Times CommunicationThread::times(Ticket ticket) const {
    const std::lock_guard lock(mutex_);
    return times_.at(ticket);
}

void CommunicationThread::serve(int rank) {
    const ProcessorLimit limit = ProcessorLimit::away_from_transport(rank);
    std::unique_lock lock(mutex_);
    while (true) {
        launched_.wait(lock, [this] { return stopping_ || (!jobs_.empty() && !failure_); });
        if (stopping_) {
            return;
        }
        const Job job = std::move(jobs_.front());
        jobs_.pop_front();
        ++begun_;
        lock.unlock();
        Times times;
        std::exception_ptr failure;
        times.begin = std::chrono::steady_clock::now();
        try {
            job();
        } catch (...) {
            failure = std::current_exception();
        }
        times.end = std::chrono::steady_clock::now();
        lock.lock();
        if (failure) {
            failure_ = failure;
        } else {
            times_.push_back(times);
        }
        ended_.notify_one();
    }
}

}  // namespace bucketwise
