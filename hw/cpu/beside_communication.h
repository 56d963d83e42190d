// What a rank on a CPU does while another of its threads communicates.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/rank/communication_thread.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/rank_device.h"
#include "hw/record/step_trace.h"
#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

inline Duration time_between(std::chrono::steady_clock::time_point begin,
                             std::chrono::steady_clock::time_point end) {
    return std::chrono::duration_cast<Duration>(end - begin);
}

// What a step of as many instructions did: execute(i) is instruction i, `tickets` are those of its
// collectives once all have been executed.
template <typename Execute>
StepTrace traced_step(std::size_t instructions, CommunicationThread& thread,
                      const std::vector<CommunicationThread::Ticket>& tickets,
                      const Execute& execute) {
    using Clock = std::chrono::steady_clock;
    StepTrace trace;
    trace.instructions.resize(instructions);
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < instructions; ++i) {
        trace.instructions[i].begin = time_between(start, Clock::now());
        execute(i);
        trace.instructions[i].end = time_between(start, Clock::now());
    }
    for (const CommunicationThread::Ticket ticket : tickets) {
        thread.wait(ticket);
        const CommunicationThread::Times times = thread.times(ticket);
        trace.collectives.push_back(
            {time_between(start, times.begin), time_between(start, times.end)});
    }
    return trace;
}

// run(i) is operation i of backward, `alone` what each takes.
template <typename Run>
ContentionTrace contend_with(IsolatedMessages& messages, const Message& message,
                             std::int64_t iterations, const std::vector<Duration>& alone,
                             const Run& run) {
    using Clock = std::chrono::steady_clock;
    const CommunicationThread& thread = messages.thread();
    const std::vector<CommunicationThread::Ticket> tickets = messages.launch(message, iterations);
    ContentionTrace trace;
    // The first operation may begin before the first collective does, the last one does not end
    // before the last collective: neither counts.
    for (std::size_t i = 0; !thread.has_ended(tickets.back()); i = (i + 1) % alone.size()) {
        const bool communicating = thread.has_begun(tickets.front());
        const Clock::time_point begin = Clock::now();
        run(static_cast<std::int32_t>(i));
        const Clock::time_point end = Clock::now();
        if (communicating && !thread.has_ended(tickets.back())) {
            trace.compute.disturbed += time_between(begin, end);
            trace.compute.alone += alone[i];
        }
    }
    trace.times = messages.times_of(tickets);
    return trace;
}

// The time of every operation of backward, once.
template <typename Run>
std::vector<Duration> times_of_backward(std::size_t operations, const Run& run) {
    using Clock = std::chrono::steady_clock;
    std::vector<Duration> times(operations);
    for (std::size_t i = 0; i < operations; ++i) {
        const Clock::time_point begin = Clock::now();
        run(static_cast<std::int32_t>(i));
        times[i] = time_between(begin, Clock::now());
    }
    return times;
}

}  // namespace bucketwise
