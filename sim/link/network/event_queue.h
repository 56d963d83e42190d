// The queue of a simulation whose events mostly come in the order they are made: messages that take
// equally long arrive in the order they were sent. Such events need no sorting, only a queue for
// each length; a priority queue would spend a comparison per doubling of the number of events in
// flight.
//
// An event goes to the back of the first lane that is empty or whose last event is not later, and
// the next event of all is the earliest at the head of a lane: what patience sorting does with
// cards. An event that fits no lane goes to a heap. Whatever the times are, events come out in the
// order of (time, sequence number); only the speed depends on how many lanes they need.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

// Something that happens to `subject`; what it means is the user's.
struct QueuedEvent {
    Duration time{0};
    std::uint64_t sequence = 0;  // given by the queue
    std::uint32_t subject = 0;
    std::uint32_t detail = 0;
    auto operator<=>(const QueuedEvent&) const = default;
};

class EventQueue {
  public:
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::size_t size() const { return size_; }

    void push(Duration time, std::uint32_t subject, std::uint32_t detail) {
        const QueuedEvent event{time, sequence_++, subject, detail};
        ++size_;
        if (used_lanes_ == 1 && lanes_[0].last <= time && !lanes_[0].full()) {
            return lanes_[0].append(event);  // nearly always, where all messages are alike
        }
        place(event);
    }

    // When the next event happens. Precondition: there is one.
    [[nodiscard]] Duration next_time() const {
        Duration earliest = rest_.empty() ? latest : rest_.top().time;
        for (std::size_t i = 0; i < used_lanes_; ++i) {
            earliest = std::min(earliest, lanes_[i].first());
        }
        return earliest;
    }

    // Precondition: there is an event.
    QueuedEvent pop() {
        --size_;
        if (used_lanes_ == 1 && rest_.empty()) {
            return lanes_[0].pop();
        }
        std::size_t best = 0;
        for (std::size_t i = 1; i < used_lanes_; ++i) {
            if (before(lanes_[i], lanes_[best])) {
                best = i;
            }
        }
        if (!rest_.empty() && !before(lanes_[best], rest_.top())) {
            const QueuedEvent event = rest_.top();
            rest_.pop();
            return event;
        }
        return lanes_[best].pop();
    }

    // Memory of the events that it can hold without asking for more.
    [[nodiscard]] std::size_t capacity_bytes() const {
        std::size_t events = rest_.size();
        for (const Lane& lane : lanes_) {
            events += lane.events.size();
        }
        return events * sizeof(QueuedEvent);
    }

  private:
    static constexpr Duration latest = Duration::max();
    static constexpr std::size_t smallest_lane = 64;
    static constexpr std::size_t most_lanes = 6;

    // A ring buffer, its size a power of two.
    struct Lane {
        std::vector<QueuedEvent> events;
        std::size_t head = 0;  // counts on; the place is its remainder
        std::size_t tail = 0;
        Duration last{0};  // of the last event that went in

        void push(const QueuedEvent& event) {
            if (full()) {
                grow();
            }
            append(event);
        }

        [[nodiscard]] bool empty() const { return head == tail; }
        [[nodiscard]] Duration first() const { return empty() ? latest : front().time; }
        [[nodiscard]] bool full() const { return tail - head == events.size(); }

        void append(const QueuedEvent& event) {
            events[tail++ & (events.size() - 1)] = event;
            last = event.time;
        }

        QueuedEvent pop() { return events[head++ & (events.size() - 1)]; }

        [[nodiscard]] const QueuedEvent& front() const {
            return events[head & (events.size() - 1)];
        }

        void grow() {
            std::vector<QueuedEvent> larger(std::max(2 * events.size(), smallest_lane));
            for (std::size_t i = head; i < tail; ++i) {
                larger[i & (larger.size() - 1)] = events[i & (events.size() - 1)];
            }
            events = std::move(larger);
        }
    };

    [[gnu::noinline]] void place(const QueuedEvent& event) {
        for (std::size_t i = 0; i < used_lanes_; ++i) {
            if (lanes_[i].last <= event.time || lanes_[i].empty()) {
                return lanes_[i].push(event);
            }
        }
        if (used_lanes_ < lanes_.size()) {
            return lanes_[used_lanes_++].push(event);
        }
        rest_.push(event);
    }

    // An empty lane is after everything.
    static bool before(const Lane& a, const Lane& b) {
        const Duration first = a.first();
        return first != b.first() ? first < b.first()
                                  : first != latest && a.front().sequence < b.front().sequence;
    }
    static bool before(const Lane& a, const QueuedEvent& b) {
        return a.first() != b.time ? a.first() < b.time : a.front().sequence < b.sequence;
    }

    std::array<Lane, most_lanes> lanes_;
    std::size_t used_lanes_ = 0;
    std::priority_queue<QueuedEvent, std::vector<QueuedEvent>, std::greater<>> rest_;
    std::uint64_t sequence_ = 0;
    std::size_t size_ = 0;
};

}  // namespace bucketwise
