#include "hw/rank/isolated_messages.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

namespace bucketwise {

namespace {

// By this rank's clock.
std::int64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Times of one rank, by its own clock.
struct RankClock {
    std::vector<std::int64_t> meetings_ns;  // of all ranks
    std::vector<std::int64_t> launches_ns;  // of each collective
};

// The clocks of every rank of `among`.
std::vector<RankClock> clocks_of_all(const RankClock& own, Communicator& among) {
    const std::size_t meetings = own.meetings_ns.size();
    std::vector<std::int64_t> sent = own.meetings_ns;
    sent.insert(sent.end(), own.launches_ns.begin(), own.launches_ns.end());
    std::vector<std::int64_t> all(sent.size() * static_cast<std::size_t>(among.ranks()));
    among.all_gather(sent.data(), all.data(),
                     Bytes{static_cast<std::int64_t>(sent.size() * sizeof(std::int64_t))});
    std::vector<RankClock> clocks(static_cast<std::size_t>(among.ranks()));
    auto next = all.begin();
    for (RankClock& clock : clocks) {
        const auto launches = next + static_cast<std::ptrdiff_t>(meetings);
        const auto end = next + static_cast<std::ptrdiff_t>(sent.size());
        clock = {{next, launches}, {launches, end}};
        next = end;
    }
    return clocks;
}

// When the last rank launched each collective, by the clock of `own`. The offset between two clocks
// is the median of their differences at the meetings.
std::vector<std::int64_t> last_launches_ns(const RankClock& own,
                                           const std::vector<RankClock>& clocks) {
    std::vector<std::int64_t> last = own.launches_ns;
    for (const RankClock& other : clocks) {
        std::vector<std::int64_t> apart(own.meetings_ns.size());
        std::ranges::transform(other.meetings_ns, own.meetings_ns, apart.begin(), std::minus<>{});
        std::ranges::sort(apart);
        const std::int64_t offset = apart[apart.size() / 2];
        std::ranges::transform(
            last, other.launches_ns, last.begin(),
            [&](std::int64_t a, std::int64_t b) { return std::max(a, b - offset); });
    }
    return last;
}

// The bytes of one rank's part, or of everything in an all-reduce.
Bytes part_of(const Message& message, int ranks) {
    const bool whole = message.kind == CollectiveKind::all_reduce;
    return elements_of(message) / (whole ? 1 : ranks) * element_size(message.dtype);
}

}  // namespace

RankExchange exchange_of(const Message& message, std::byte* data, int rank, int ranks) {
    const Bytes part = part_of(message, ranks);
    const bool gathers = message.kind == CollectiveKind::all_gather;
    return {.kind = message.kind,
            .own = data + (gathers ? rank * part.count : 0),
            .all = data,
            .size = part,
            .dtype = message.dtype};
}

void write_known(const Message& message, std::byte* data, int rank, int ranks) {
    const RankExchange exchange = exchange_of(message, data, rank, ranks);
    const bool gathers = message.kind == CollectiveKind::all_gather;
    write_known_message(exchange.own, gathers ? exchange.elements() : elements_of(message),
                        message.dtype, rank);
}

MessageCheck check_known(const Message& message, const std::byte* data, int rank, int ranks) {
    const Bytes part = part_of(message, ranks);
    const std::int64_t elements = part.count / element_size(message.dtype).count;
    if (message.kind == CollectiveKind::all_gather) {
        return check_known_gather(data, elements, message.dtype, ranks);
    }
    const int before = message.kind == CollectiveKind::reduce_scatter ? rank : 0;
    return check_known_sum(data + before * part.count, elements, message.dtype, ranks,
                           before * elements);
}

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

void IsolatedMessages::exchange(const Message& message, Communicator& among) {
    carry(among, exchange_of(message, message_.at(0), among.rank(), among.ranks()));
}

void IsolatedMessages::exchange_known(const Message& message, Communicator& among,
                                      MessageTrace& trace) {
    write_known(message, message_.at(0), among.rank(), among.ranks());
    exchange(message, among);
    const MessageCheck found = check_known(message, message_.at(0), among.rank(), among.ranks());
    trace.largest_difference = found.largest_difference;
    trace.wrong = found.wrong;
    std::memset(message_.at(0), 0, static_cast<std::size_t>(message.size.count));
}

std::vector<CommunicationThread::Ticket> IsolatedMessages::launch_all(const Message& message,
                                                                      std::int64_t iterations) {
    std::vector<CommunicationThread::Ticket> tickets;
    for (std::int64_t i = 0; i < iterations; ++i) {
        tickets.push_back(thread_.launch([this, message] { exchange(message, communicator_); }));
    }
    return tickets;
}

std::vector<CommunicationThread::Ticket> IsolatedMessages::launch(const Message& message,
                                                                  std::int64_t iterations) {
    prepare(message.size);
    thread_.restart();
    // Nobody waits for it: a detour over the calling thread would let ranks set out at different
    // times.
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
    prepare(message.size);
    MessageTrace trace;
    thread_.restart();
    // Nobody waits for this either; `trace` outlives it, as the collectives behind it are awaited.
    thread_.launch([&] {
        exchange_known(message, communicator_, trace);
        meet();
    });
    trace.times = times_of(launch_all(message, iterations));
    return trace;
}

MessageTrace IsolatedMessages::measure_between(const std::function<void()>& computing,
                                               const Message& message, std::int64_t iterations,
                                               Communicator& among) {
    constexpr int meetings = 9;
    prepare(message.size);
    MessageTrace trace;
    trace.ranks = among.ranks();
    RankClock own;
    thread_.restart();
    const auto run = [&](const CommunicationThread::Job& job) {
        thread_.wait(thread_.launch(job));
    };
    run([&] {
        exchange_known(message, among, trace);
        for (int i = 0; i < meetings; ++i) {
            meet();
            own.meetings_ns.push_back(now_ns());
        }
    });
    std::vector<std::int64_t> ends_ns;
    for (std::int64_t i = 0; i < iterations; ++i) {
        computing();
        own.launches_ns.push_back(now_ns());
        run([&] { exchange(message, among); });
        ends_ns.push_back(now_ns());
    }
    std::vector<RankClock> clocks;
    run([&] { clocks = clocks_of_all(own, among); });
    const std::vector<std::int64_t> last_ns = last_launches_ns(own, clocks);
    for (std::size_t i = 0; i < ends_ns.size(); ++i) {
        constexpr std::int64_t least_ns = 1;
        trace.times.push_back(std::chrono::duration_cast<Duration>(
            std::chrono::nanoseconds{std::max(ends_ns[i] - last_ns[i], least_ns)}));
    }
    return trace;
}

std::int64_t iterations_for(Bytes size) {
    constexpr Bytes small{std::int64_t{64} << 10};
    constexpr Bytes medium{bytes_per_mib};
    constexpr Bytes large{16 * bytes_per_mib};
    return size <= small ? 20 : size <= medium ? 10 : size <= large ? 3 : 1;
}

}  // namespace bucketwise
