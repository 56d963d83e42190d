#include "hw/rank/isolated_messages.h"

#include <chrono>
#include <cstring>

namespace bucketwise {

namespace {

std::int64_t elements_in(const Message& message) {
    return message.size.count / element_size(message.dtype).count;
}

}  // namespace

// A message of one element: when it ends, all ranks have begun it.
void IsolatedMessages::meet() {
    float one = 1.0F;
    communicator_.all_reduce_sum(&one, 1, DType::float32);
}

void IsolatedMessages::prepare(Bytes size) {
    if (message_.size_bytes() < size.count) {
        message_ = Arena();  // never two at once
        message_ = Arena(size.count);
    }
    std::memset(message_.at(0), 0, static_cast<std::size_t>(size.count));
}

// Elements of each rank.
std::int64_t IsolatedMessages::part_of(const Message& message) const {
    return elements_in(message) / communicator_.ranks();
}

void IsolatedMessages::exchange(const Message& message) {
    const Bytes part = part_of(message) * element_size(message.dtype);
    switch (message.kind) {
        case CollectiveKind::all_gather:
            communicator_.all_gather(message_.at(communicator_.rank() * part.count), message_.at(0),
                                     part);
            return;
        case CollectiveKind::reduce_scatter:
            communicator_.reduce_scatter_sum(message_.at(0), part_of(message), message.dtype);
            return;
        case CollectiveKind::all_reduce:
        case CollectiveKind::broadcast:
            break;
    }
    communicator_.all_reduce_sum(message_.at(0), elements_in(message), message.dtype);
}

// An all-gather has only the own part of the rank.
void IsolatedMessages::write_known(const Message& message) {
    const bool gathers = message.kind == CollectiveKind::all_gather;
    const std::int64_t elements = gathers ? part_of(message) : elements_in(message);
    const std::int64_t before = gathers ? communicator_.rank() * elements : 0;
    write_known_message(message_.at(before * element_size(message.dtype).count), elements,
                        message.dtype, communicator_.rank());
}

MessageCheck IsolatedMessages::check(const Message& message) {
    const int ranks = communicator_.ranks();
    const std::int64_t part = part_of(message);
    const std::int64_t before = communicator_.rank() * part;
    switch (message.kind) {
        case CollectiveKind::all_gather:
            return check_known_gather(message_.at(0), part, message.dtype, ranks);
        case CollectiveKind::reduce_scatter:
            return check_known_sum(message_.at(before * element_size(message.dtype).count), part,
                                   message.dtype, ranks, before);
        case CollectiveKind::all_reduce:
        case CollectiveKind::broadcast:
            break;
    }
    return check_known_sum(message_.at(0), elements_in(message), message.dtype, ranks);
}

std::vector<CommunicationThread::Ticket> IsolatedMessages::launch_all(const Message& message,
                                                                      std::int64_t iterations) {
    std::vector<CommunicationThread::Ticket> tickets;
    for (std::int64_t i = 0; i < iterations; ++i) {
        tickets.push_back(thread_.launch([this, message] { exchange(message); }));
    }
    return tickets;
}

std::vector<CommunicationThread::Ticket> IsolatedMessages::launch(const Message& message,
                                                                  std::int64_t iterations) {
    prepare(message.size);
    thread_.restart();
    // Not waited for: the way over the calling thread would let ranks set out at different times.
    thread_.launch([this] { meet(); });
    return launch_all(message, iterations);
}

std::vector<Duration> IsolatedMessages::times_of(
    const std::vector<CommunicationThread::Ticket>& tickets) {
    std::vector<Duration> times;
    for (const CommunicationThread::Ticket ticket : tickets) {
        thread_.wait(ticket);
        const CommunicationThread::Times t = thread_.times(ticket);
        times.push_back(std::chrono::duration_cast<Duration>(t.end - t.begin));
    }
    return times;
}

std::vector<Duration> IsolatedMessages::repeat(const Message& message, std::int64_t iterations,
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

MessageTrace IsolatedMessages::measure(const Message& message, std::int64_t iterations) {
    const Bytes size = message.size;
    prepare(size);
    MessageTrace trace;
    thread_.restart();
    // Not waited for either; `trace` outlives it, as those behind it are.
    thread_.launch([&] {
        write_known(message);
        exchange(message);
        const MessageCheck found = check(message);
        trace.largest_difference = found.largest_difference;
        trace.wrong = found.wrong;
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
