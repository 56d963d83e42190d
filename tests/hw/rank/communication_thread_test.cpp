#include "hw/rank/communication_thread.h"

#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("collectives run one after another in the order in which they were launched") {
    CommunicationThread thread(0);
    std::vector<int> order;
    std::vector<CommunicationThread::Ticket> tickets;
    for (int i = 0; i < 100; ++i) {
        tickets.push_back(thread.launch([&order, i] { order.push_back(i); }));
    }
    thread.wait(tickets.back());
    REQUIRE(order.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) {
        CHECK(order[i] == static_cast<int>(i));
        CHECK(thread.has_ended(tickets[i]));
        if (i > 0) {
            CHECK(thread.times(tickets[i]).begin >= thread.times(tickets[i - 1]).end);
        }
    }
}

TEST_CASE("launching does not wait for the collective") {
    CommunicationThread thread(0);
    std::promise<void> gate;
    const CommunicationThread::Ticket first = thread.launch([&] { gate.get_future().wait(); });
    const CommunicationThread::Ticket second = thread.launch([] {});
    CHECK_FALSE(thread.has_ended(first));
    CHECK_FALSE(thread.has_begun(second));
    gate.set_value();
    thread.wait(second);
    CHECK(thread.has_ended(first));
}

TEST_CASE("waiting rethrows what a collective threw, also for those behind it") {
    CommunicationThread thread(0);
    std::atomic<bool> ran = false;
    const auto good = thread.launch([] {});
    const auto bad = thread.launch([] { throw std::runtime_error("gone"); });
    const auto behind = thread.launch([&] { ran = true; });
    CHECK_NOTHROW(thread.wait(good));
    CHECK_THROWS_WITH(thread.wait(bad), "gone");
    CHECK_THROWS_WITH(thread.wait(behind), "gone");
    CHECK(thread.has_ended(behind));
    CHECK_FALSE(ran);
}

TEST_CASE("a thread that is restarted counts tickets anew") {
    CommunicationThread thread(0);
    for (int step = 0; step < 3; ++step) {
        thread.restart();
        const auto ticket = thread.launch([] {});
        CHECK(ticket == 0);
        thread.wait(ticket);
    }
}

TEST_CASE("destroying a thread drops what has not begun") {
    std::atomic<int> ran = 0;
    std::promise<void> started;
    std::promise<void> gate;
    std::future<void> opened = gate.get_future();
    {
        CommunicationThread thread(0);
        thread.launch([&] {
            ++ran;
            started.set_value();
            opened.wait();
        });
        started.get_future().wait();
        gate.set_value();
    }
    CHECK(ran == 1);
}

}  // namespace
}  // namespace bucketwise
