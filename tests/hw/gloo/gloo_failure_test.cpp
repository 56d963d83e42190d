#include <array>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "hw/gloo/connection.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using namespace std::chrono_literals;
using testing::contains;
using testing::Ending;
using testing::RankOutcome;
using testing::TemporaryDirectory;

struct Collective {
    std::string name;
    std::function<void(GlooConnection&)> run;
};

void reduce(GlooConnection& connection, AllReduceImplementation implementation) {
    std::vector<float> data(100'000, 1.0F);
    connection.communicator(implementation)
        .all_reduce_sum(data.data(), std::ssize(data), DType::float32);
}

// In each of them no rank but the first can do its part without the others.
std::vector<Collective> collectives() {
    return {
        {"library", [](GlooConnection& c) { reduce(c, AllReduceImplementation::library); }},
        {"ring", [](GlooConnection& c) { reduce(c, AllReduceImplementation::ring); }},
        {"direct", [](GlooConnection& c) { reduce(c, AllReduceImplementation::direct); }},
        {"barrier", [](GlooConnection& c) { c.control().barrier(); }},
    };
}

bool on_one_line_without_paths(const std::string& reason) {
    return !contains(reason, "\n") && !contains(reason, ".cc:") && !contains(reason, "/gloo/");
}

// Runs `act` for every collective at once, each with a job of its own, and returns what it says.
template <typename Act>
std::vector<std::vector<RankOutcome>> for_each_collective(const Act& act) {
    const std::vector<Collective> all = collectives();
    std::vector<std::vector<RankOutcome>> outcomes(all.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < all.size(); ++i) {
        threads.emplace_back([&, i] { outcomes[i] = act(all[i]); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return outcomes;
}

TEST_CASE("when a rank is gone, the others learn of it long before their deadline") {
    constexpr int ranks = 4;
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = for_each_collective([](const Collective& collective) {
        return testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
            if (rank != 2) {
                collective.run(connection);
            }
        });
    });
    CHECK(std::chrono::steady_clock::now() - start < 30s);  // of a deadline of 60 s
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        CAPTURE(collectives()[i].name);
        for (const int rank : {0, 1, 3}) {
            const RankOutcome& outcome = outcomes[i][static_cast<std::size_t>(rank)];
            CAPTURE(rank, outcome.reason);
            CHECK(outcome.ending == Ending::peer_failure);
            CHECK(contains(outcome.reason, "on rank " + std::to_string(rank) + " of 4: "));
            CHECK(on_one_line_without_paths(outcome.reason));
        }
        CHECK(outcomes[i][2].ending == Ending::well);
    }
}

TEST_CASE("a rank that stays silent makes the others fail at about their deadline") {
    constexpr int ranks = 3;
    constexpr std::chrono::milliseconds deadline = 2000ms;
    const TemporaryDirectory directory;
    const auto outcomes = for_each_collective([&](const Collective& collective) {
        std::latch failed(ranks - 1);
        return testing::on_threads(ranks, [&](int rank) {
            MeetingPoint meeting = testing::meeting_in(directory.path(), rank, ranks);
            meeting.job = collective.name;
            meeting.deadline = deadline;
            GlooConnection connection(meeting);
            if (rank == 1) {
                failed.wait();
                return;
            }
            const auto start = std::chrono::steady_clock::now();
            const RankOutcome outcome = testing::outcome_of([&] { collective.run(connection); });
            const auto took = std::chrono::steady_clock::now() - start;
            // The next call fails at once.
            const RankOutcome again = testing::outcome_of([&] { collective.run(connection); });
            failed.count_down();
            if (took > deadline + 10s || again.ending != Ending::peer_failure) {
                throw std::logic_error("took too long, or went on");
            }
            if (outcome.ending == Ending::peer_failure) {
                throw PeerFailure(outcome.reason);
            }
        });
    });
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        CAPTURE(collectives()[i].name);
        for (const int rank : {0, 2}) {
            const RankOutcome& outcome = outcomes[i][static_cast<std::size_t>(rank)];
            CAPTURE(rank, outcome.reason);
            CHECK(outcome.ending == Ending::peer_failure);
            CHECK(on_one_line_without_paths(outcome.reason));
        }
        CHECK(outcomes[i][1].reason.empty());
    }
}

// Rank 1 keeps its part of the all-reduce back until rank 0 has given up on it.
TEST_CASE("the control group goes on when a communicator has failed") {
    constexpr int ranks = 2;
    const TemporaryDirectory directory;
    std::latch failed(1);
    std::array<std::int64_t, ranks> received{};
    testing::require_well(testing::on_threads(ranks, [&](int rank) {
        MeetingPoint meeting = testing::meeting_in(directory.path(), rank, ranks);
        meeting.deadline = 2000ms;
        GlooConnection connection(meeting);
        if (rank == 0) {
            const RankOutcome outcome =
                testing::outcome_of([&] { reduce(connection, AllReduceImplementation::ring); });
            failed.count_down();
            if (outcome.ending != Ending::peer_failure) {
                throw std::logic_error("expected a failure");
            }
        } else {
            failed.wait();
        }
        std::array<std::int64_t, 1> values{rank + 7};
        connection.control().broadcast_from_first(values);
        received.at(static_cast<std::size_t>(rank)) = values.front();
    }));
    CHECK(received == std::array<std::int64_t, ranks>{7, 7});
}

}  // namespace
}  // namespace bucketwise
