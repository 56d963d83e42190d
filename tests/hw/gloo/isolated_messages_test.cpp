#include "hw/rank/isolated_messages.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <string>

#include "hw/gloo/connection.h"
#include "tests/catch.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

constexpr std::array isolated_kinds{CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter};

Message message_of(CollectiveKind kind, int ranks) {
    return {.size = {ranks * 1000LL * 4}, .dtype = DType::float32, .kind = kind};
}

TEST_CASE("a message of each kind is timed as often as asked, and its result is right") {
    for (const CollectiveKind kind : isolated_kinds) {
        for (const int ranks : {1, 2, 3}) {
            std::vector<MessageTrace> traces(static_cast<std::size_t>(ranks));
            const auto outcomes = testing::on_ranks(ranks, [&](GlooConnection& connection,
                                                               int rank) {
                IsolatedMessages messages(connection.communicator(AllReduceImplementation::ring));
                traces[static_cast<std::size_t>(rank)] =
                    messages.measure(message_of(kind, ranks), 3);
            });
            CAPTURE(name_of(kind), ranks);
            REQUIRE(testing::first_reason(outcomes).empty());
            for (const MessageTrace& trace : traces) {
                CHECK(trace.times.size() == 3);
                CHECK(trace.wrong.empty());
                // Gathered values are nobody's sum.
                CHECK((kind != CollectiveKind::all_gather || trace.largest_difference == 0));
                CHECK(trace.largest_difference < 1e-6);
            }
        }
    }
}

TEST_CASE("between computing a message is timed from when the last rank has come") {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds late{40};
    std::array<MessageTrace, 2> traces;
    testing::require_well(testing::on_ranks(2, [&](GlooConnection& connection, int rank) {
        Communicator& communicator = connection.communicator(AllReduceImplementation::ring);
        IsolatedMessages messages(communicator);
        const auto computing = [&] {
            for (const auto begin = Clock::now(); rank == 1 && Clock::now() - begin < late;) {
            }
        };
        traces.at(static_cast<std::size_t>(rank)) = messages.measure_between(
            computing, message_of(CollectiveKind::all_gather, 2), 5, communicator);
    }));
    for (const MessageTrace& trace : traces) {
        CHECK(trace.wrong.empty());
        CHECK(trace.ranks == 2);
        REQUIRE(trace.times.size() == 5);
        // Rank 0's wait for rank 1 does not count to the message.
        CHECK(*std::ranges::min_element(trace.times) < Duration{late} / 4);
        CHECK(*std::ranges::min_element(trace.times) > Duration{0});
    }
}

// Loses what the last rank sent, but for sums of one element, by which ranks meet.
class LosingCommunicator : public Communicator {
  public:
    explicit LosingCommunicator(Communicator& inner) : inner_(inner) {}
    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int ranks() const override { return inner_.ranks(); }
    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override {
        inner_.all_reduce_sum(data, elements, dtype);
        lose(data, elements > 1 ? elements : 0);
    }
    void reduce_scatter_sum(void* data, std::int64_t elements, DType dtype) override {
        inner_.reduce_scatter_sum(data, elements, dtype);
        lose(data, ranks() * elements);
    }
    void all_gather(const void* own, void* all, Bytes size) override {
        inner_.all_gather(own, all, size);
        lose(all, ranks() * size.count / 4);
    }
    void broadcast_from_first(void* data, Bytes size) override {
        inner_.broadcast_from_first(data, size);
    }

  private:
    // The last of so many float32.
    static void lose(void* data, std::int64_t elements) {
        if (elements > 0) {
            static_cast<float*>(data)[elements - 1] = 0;
        }
    }

    Communicator& inner_;
};

TEST_CASE("a message of any kind whose last element is lost is said to be wrong") {
    for (const CollectiveKind kind : isolated_kinds) {
        std::array<std::string, 2> wrong;
        const auto outcomes = testing::on_ranks(2, [&](GlooConnection& connection, int rank) {
            LosingCommunicator losing(connection.communicator(AllReduceImplementation::direct));
            IsolatedMessages messages(losing);
            wrong.at(static_cast<std::size_t>(rank)) =
                messages.measure(message_of(kind, 2), 1).wrong;
        });
        CAPTURE(name_of(kind));
        REQUIRE(testing::first_reason(outcomes).empty());
        // The last rank's part of a reduce-scatter is nobody else's.
        CHECK(wrong[0].empty() == (kind == CollectiveKind::reduce_scatter));
        CHECK_FALSE(wrong[1].empty());
    }
}

}  // namespace
}  // namespace bucketwise
