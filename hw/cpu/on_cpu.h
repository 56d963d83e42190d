// The part of a rank on a CPU that is the same for every kind of step: one thread computes, another
// communicates.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "hw/compute/planned_kernels.h"
#include "hw/rank/communication_thread.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/rank_device.h"
#include "hw/record/step_trace.h"

namespace bucketwise {

// Replaying: a kind of step on any device.
template <typename Replaying>
class OnCpu : public Replaying {
  public:
    MessageTrace measure(const Message& message, std::int64_t iterations) override {
        return messages_->measure(message, iterations);
    }
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override {
        return messages_->repeat(message, iterations, waiting);
    }
    [[nodiscard]] std::int64_t peak_memory_bytes() const override {
        return messages_->peak_memory_bytes();
    }

    std::vector<Duration> backward_alone() override {
        const auto once = [this] {
            std::vector<Duration> times(operations());
            for (std::size_t i = 0; i < times.size(); ++i) {
                const Clock::time_point begin = Clock::now();
                run_backward(i);
                times[i] = since(begin);
            }
            return times;
        };
        return times_alone(operations(), once, once);
    }

    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override {
        const CommunicationThread& thread = messages_->thread();
        const std::vector<CommunicationThread::Ticket> tickets =
            messages_->launch(message, iterations);
        ContentionTrace trace;
        // The first operation may begin before the first collective does, and the last one does
        // not end before the last collective: neither counts.
        for (std::size_t i = 0; !thread.has_ended(tickets.back()); i = (i + 1) % alone.size()) {
            const bool communicating = thread.has_begun(tickets.front());
            const Clock::time_point begin = Clock::now();
            run_backward(i);
            const Duration time = since(begin);
            if (communicating && !thread.has_ended(tickets.back())) {
                trace.compute += {time, alone[i]};
            }
        }
        trace.times = messages_->times_of(tickets);
        return trace;
    }

  protected:
    using Clock = std::chrono::steady_clock;

    // `all`: kept by reference, and used by another thread.
    template <typename... Arguments>
    explicit OnCpu(Communicator& all, Arguments&&... arguments)
        : Replaying(std::forward<Arguments>(arguments)...),
          messages_(std::make_unique<IsolatedMessages>(all)) {}

    // For destructors: ends the thread before the memory goes that it works on.
    void end() { messages_.reset(); }

    [[nodiscard]] IsolatedMessages& messages() { return *messages_; }
    [[nodiscard]] CommunicationThread& thread() { return messages_->thread(); }

    // All ranks set out together, if they communicate; no collective has been launched.
    void set_out_together(bool communicates) {
        thread().restart();
        if (communicates) {
            thread().wait(thread().launch([this] { messages_->meet(); }));
        }
    }

    // The trace of a step of that many instructions: execute(i) runs instruction i, `tickets` are
    // those of its collectives once all have been executed.
    template <typename Execute>
    StepTrace traced_step(std::size_t instructions,
                          const std::vector<CommunicationThread::Ticket>& tickets,
                          const Execute& execute) {
        StepTrace trace;
        trace.instructions.resize(instructions);
        const Clock::time_point start = Clock::now();
        for (std::size_t i = 0; i < instructions; ++i) {
            trace.instructions[i].begin = since(start);
            execute(i);
            trace.instructions[i].end = since(start);
        }
        for (const CommunicationThread::Ticket ticket : tickets) {
            thread().wait(ticket);
            const CommunicationThread::Times times = thread().times(ticket);
            trace.collectives.push_back({std::chrono::duration_cast<Duration>(times.begin - start),
                                         std::chrono::duration_cast<Duration>(times.end - start)});
        }
        return trace;
    }

    static Duration since(Clock::time_point begin) {
        return std::chrono::duration_cast<Duration>(Clock::now() - begin);
    }

    void run_backward(std::size_t operation) {
        kernels().backward(static_cast<std::int32_t>(operation), 1.0F, false);
    }
    [[nodiscard]] std::size_t operations() const { return this->workload().backward.size(); }

  private:
    PlannedKernels& kernels() override = 0;

    std::unique_ptr<IsolatedMessages> messages_;
};

}  // namespace bucketwise
