#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "hw/gloo/connection.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using namespace std::chrono_literals;
using testing::contains;
using testing::Ending;
using testing::meeting_in;
using testing::outcome_of;
using testing::RankOutcome;
using testing::TemporaryDirectory;

RankOutcome meet(const MeetingPoint& meeting) {
    return outcome_of([&] { const GlooConnection connection(meeting); });
}

TEST_CASE("one rank needs nobody") {
    testing::require_well(testing::on_ranks(1, [](GlooConnection& connection, int) {
        float value = 3;
        Communicator& communicator = connection.communicator(AllReduceImplementation::direct);
        communicator.all_reduce_sum(&value, 1, DType::float32);
        communicator.broadcast_from_first(&value, Bytes{4});
        connection.control().barrier();
        if (value != 3 || communicator.rank() != 0 || communicator.ranks() != 1) {
            throw std::logic_error("alone, yet something changed");
        }
    }));
}

TEST_CASE("a meeting that some ranks miss ends at the deadline and names them") {
    const TemporaryDirectory directory;
    MeetingPoint meeting = meeting_in(directory.path(), 0, 5);
    meeting.deadline = 300ms;
    const auto start = std::chrono::steady_clock::now();
    const RankOutcome first = meet(meeting);
    const auto took = std::chrono::steady_clock::now() - start;
    CHECK(took >= 300ms);
    CHECK(took < 20s);
    CHECK(first.ending == Ending::peer_failure);
    CHECK(first.reason ==
          directory.path() + ": ranks 1, 2, 3 and 4 of 5 did not arrive within 300 ms");
    // A rank that has given up has arrived all the same.
    meeting.rank = 2;
    CHECK(meet(meeting).reason ==
          directory.path() + ": ranks 1, 3 and 4 of 5 did not arrive within 300 ms");
}

TEST_CASE("a meeting that only one rank misses names it") {
    const TemporaryDirectory directory;
    MeetingPoint meeting = meeting_in(directory.path(), 1, 2);
    meeting.deadline = 1ms;
    CHECK(meet(meeting).reason == directory.path() + ": rank 0 of 2 did not arrive within 1 ms");
}

TEST_CASE("ranks that wait in a directory notice when it is removed") {
    const TemporaryDirectory parent;
    const std::string directory = parent.path() + "/store";
    std::filesystem::create_directory(directory);
    const auto start = std::chrono::steady_clock::now();
    RankOutcome outcome;
    std::thread waiting([&] { outcome = meet(meeting_in(directory, 0, 2)); });
    // Once the rank's key is there it waits for the other's. Gloo writes to a hidden file first.
    const auto has_key = [&] {
        const std::filesystem::directory_iterator files(directory);
        return std::any_of(begin(files), end(files), [](const auto& file) {
            return file.path().filename().string().front() != '.';
        });
    };
    while (!has_key()) {
        std::this_thread::yield();
    }
    std::filesystem::remove_all(directory);
    waiting.join();
    CHECK(std::chrono::steady_clock::now() - start < 30s);  // of a deadline of 60 s
    CHECK(outcome.ending == Ending::other_failure);
    CHECK(outcome.reason == directory + ": the directory where the ranks meet was removed");
}

TEST_CASE("ranks that have met leave the store as it was, for the next run of the same job") {
    const TemporaryDirectory directory;
    for (int time = 0; time < 2; ++time) {
        testing::require_well(testing::on_threads(3, [&](int rank) {
            const GlooConnection connection(meeting_in(directory.path(), rank, 3));
        }));
        CHECK(std::filesystem::is_empty(directory.path()));
    }
}

TEST_CASE("a job does not meet over the keys of a run that never met, but another job does") {
    const TemporaryDirectory directory;
    MeetingPoint alone = meeting_in(directory.path(), 0, 2);
    alone.deadline = 50ms;
    CHECK(meet(alone).ending == Ending::peer_failure);
    const auto run = [&](const std::string& job) {
        return testing::on_threads(2, [&](int rank) {
            MeetingPoint meeting = meeting_in(directory.path(), rank, 2);
            meeting.job = job;
            meeting.deadline = job == alone.job ? 300ms : meeting.deadline;
            const GlooConnection connection(meeting);
        });
    };
    const std::vector<RankOutcome> outcomes = run(alone.job);
    CHECK(outcomes[0].ending == Ending::other_failure);
    CHECK(
        contains(outcomes[0].reason, directory.path() + ": rank 0 of job \"test\" has been here"));
    CHECK(outcomes[1].ending == Ending::peer_failure);
    CHECK(testing::first_reason(run("another")).empty());
}

TEST_CASE("a store that is no directory is refused by its path, also for one rank") {
    const TemporaryDirectory directory;
    const std::string file = directory.path() + "/file";
    std::ofstream(file) << "x";
    CHECK(meet(meeting_in(directory.path() + "/no", 0, 2)).reason ==
          directory.path() +
              "/no: expected a directory where the ranks meet, or redis://HOST:PORT, got nothing "
              "there");
    CHECK(meet(meeting_in(file, 0, 1)).reason ==
          file + ": expected a directory where the ranks meet, or redis://HOST:PORT, got a file");
    CHECK_THROWS_AS(GlooConnection(meeting_in("", 0, 1)), InputError);
}

TEST_CASE("only one address of this host can be listened on") {
    const TemporaryDirectory directory;
    MeetingPoint meeting = meeting_in(directory.path(), 0, 1);
    // 192.0.2.0/24 is reserved for documentation (RFC 5737): no host has an address in it.
    for (const char* const address :
         {"0.0.0.0", "0", "::", "::0", "::ffff:0.0.0.0", "localhost", "192.0.2.1", ""}) {
        CAPTURE(address);
        meeting.address = address;
        CHECK_THROWS_AS(GlooConnection(meeting), InputError);
    }
    meeting.interface = "no-such-0";
    CHECK(contains(meet(meeting).reason, "\"no-such-0\""));
    meeting.interface = "lo";
    CHECK(meet(meeting).reason.empty());
}

TEST_CASE("ranks meet on an interface as on an address") {
    const TemporaryDirectory directory;
    testing::require_well(testing::on_threads(2, [&](int rank) {
        MeetingPoint meeting = meeting_in(directory.path(), rank, 2);
        meeting.address = "";
        meeting.interface = "lo";
        GlooConnection connection(meeting);
        connection.control().barrier();
    }));
}

TEST_CASE("a rank must be one of the ranks, and a deadline must leave time") {
    const TemporaryDirectory directory;
    CHECK_THROWS_AS(GlooConnection(meeting_in(directory.path(), 2, 2)), InputError);
    CHECK_THROWS_AS(GlooConnection(meeting_in(directory.path(), -1, 2)), InputError);
    CHECK_THROWS_AS(GlooConnection(meeting_in(directory.path(), 0, 0)), InputError);
    MeetingPoint meeting = meeting_in(directory.path(), 0, 1);
    meeting.deadline = 0ms;
    CHECK_THROWS_AS(GlooConnection(meeting), InputError);
}

}  // namespace
}  // namespace bucketwise
