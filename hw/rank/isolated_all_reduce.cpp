#include "hw/rank/isolated_all_reduce.h"

#include <chrono>
#include <cstring>

#include "hw/compute/known_message.h"

namespace bucketwise {

// A message of one element: when it ends, all ranks have begun it.
void IsolatedAllReduce::meet() {
    float one = 1.0F;
    communicator_.all_reduce_sum(&one, 1, DType::float32);
}

void IsolatedAllReduce::prepare(Bytes size) {
    if (message_.size_bytes() < size.count) {
        message_ = Arena();  // never two at once
        message_ = Arena(size.count);
    }
    std::memset(message_.at(0), 0, static_cast<std::size_t>(size.count));
}

std::vector<CommunicationThread::Ticket> IsolatedAllReduce::launch_all(const Message& message,
                                                                       std::int64_t iterations) {
    const DType dtype = message.dtype;
    const std::int64_t elements = message.size.count / element_size(dtype).count;
    std::vector<CommunicationThread::Ticket> tickets;
    for (std::int64_t i = 0; i < iterations; ++i) {
        tickets.push_back(thread_.launch([this, elements, dtype] {
            communicator_.all_reduce_sum(message_.at(0), elements, dtype);
        }));
    }
    return tickets;
}

std::vector<CommunicationThread::Ticket> IsolatedAllReduce::launch(const Message& message,
                                                                   std::int64_t iterations) {
    prepare(message.size);
    thread_.restart();
    // Not waited for: the way over the calling thread would let ranks set out at different times.
    thread_.launch([this] { meet(); });
    return launch_all(message, iterations);
}

std::vector<Duration> IsolatedAllReduce::times_of(
    const std::vector<CommunicationThread::Ticket>& tickets) {
    std::vector<Duration> times;
    for (const CommunicationThread::Ticket ticket : tickets) {
        thread_.wait(ticket);
        const CommunicationThread::Times t = thread_.times(ticket);
        times.push_back(std::chrono::duration_cast<Duration>(t.end - t.begin));
    }
    return times;
}

std::vector<Duration> IsolatedAllReduce::repeat(const Message& message, std::int64_t iterations,
                                                const std::function<void()>& waiting) {
    std::vector<Duration> times;
    auto called = std::chrono::steady_clock::now();
    for (const CommunicationThread::Ticket ticket : launch(message, iterations)) {
        times.push_back(times_of({ticket}).front());
        if (waiting && std::chrono::steady_clock::now() - called > std::chrono::seconds{1}) {
            waiting();
            called = std::chrono::steady_clock::now();
        }
    }
    return times;
}

AllReduceTrace IsolatedAllReduce::all_reduce(const Message& message, std::int64_t iterations) {
    const Bytes size = message.size;
    const DType dtype = message.dtype;
    const std::int64_t elements = size.count / element_size(dtype).count;
    prepare(size);
    AllReduceTrace trace;
    thread_.restart();
    // Not waited for either; `trace` outlives it, as those behind it are.
    thread_.launch([&] {
        write_known_message(message_.at(0), elements, dtype, communicator_.rank());
        communicator_.all_reduce_sum(message_.at(0), elements, dtype);
        const MessageCheck check =
            check_known_sum(message_.at(0), elements, dtype, communicator_.ranks());
        trace.largest_difference = check.largest_difference;
        trace.wrong = check.wrong;
        std::memset(message_.at(0), 0, static_cast<std::size_t>(size.count));
        meet();
    });
    trace.times = times_of(launch_all(message, iterations));
    return trace;
}

std::int64_t iterations_for(Bytes size) {
    constexpr Bytes small{std::int64_t{64} << 10};
    constexpr Bytes medium{bytes_per_mib};
    constexpr Bytes large{16 * bytes_per_mib};
    return size <= small ? 20 : size <= medium ? 10 : size <= large ? 3 : 1;
}

}  // namespace bucketwise
