#include "sim/link/network/event_queue.h"

#include <queue>
#include <random>
#include <tuple>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {
namespace {

// The order that the header promises, by another means.
class ReferenceQueue {
  public:
    void push(Duration time, std::uint32_t subject) { queue_.emplace(time, next_++, subject); }
    std::uint32_t pop() {
        const std::uint32_t subject = std::get<2>(queue_.top());
        queue_.pop();
        return subject;
    }

  private:
    using Entry = std::tuple<Duration, std::uint64_t, std::uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
    std::uint64_t next_ = 0;
};

// Pushes and pops at random, events up to `lengths` different times ahead of the last one popped.
void check_order(std::uint64_t seed, int lengths, int spread) {
    std::mt19937_64 random(seed);
    EventQueue queue;
    ReferenceQueue reference;
    Duration now{0};
    bool equal = true;
    for (std::uint32_t i = 0; i < 3000; ++i) {
        const bool pops = !queue.empty() && random() % 100 < (i / 500 % 2 == 0 ? 40U : 60U);
        if (pops) {
            equal = equal && queue.next_time() >= now;
            const QueuedEvent event = queue.pop();
            equal = equal && event.subject == reference.pop() && event.time >= now;
            now = event.time;
        } else {
            const auto length =
                static_cast<std::int64_t>(random() % static_cast<unsigned>(lengths));
            const Duration time = now + Duration{length * spread};
            queue.push(time, i, 0);
            reference.push(time, i);
        }
    }
    while (!queue.empty()) {
        equal = equal && queue.pop().subject == reference.pop();
    }
    CHECK(equal);
}

TEST_CASE("events come out by time, and of the same time as they went in, however many lengths") {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        check_order(seed, 1, 7);        // one lane
        check_order(seed, 2, 1);        // two
        check_order(seed, 5, 100);      // all lanes
        check_order(seed, 1000, 3);     // mostly beyond the lanes
        check_order(seed, 1 << 30, 1);  // no two alike
    }
}

TEST_CASE("a queue that ran empty takes events that are earlier than the last one it held") {
    EventQueue queue;
    queue.push(Duration{100}, 1, 0);
    CHECK(queue.pop().subject == 1);
    queue.push(Duration{50}, 2, 0);
    queue.push(Duration{40}, 3, 0);
    CHECK(queue.size() == 2);
    CHECK(queue.pop().subject == 3);
    CHECK(queue.pop().subject == 2);
    CHECK(queue.empty());
}

}  // namespace
}  // namespace bucketwise
