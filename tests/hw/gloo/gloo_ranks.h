// Several ranks in one process, a thread each, that meet in a directory of their own on 127.0.0.1.
#pragma once

#include <stdlib.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hw/gloo/connection.h"
#include "tests/catch.h"

namespace bucketwise::testing {

class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "bucketwise.XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("mkdtemp failed");
        }
        path_ = name;
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

inline MeetingPoint meeting_in(const std::string& store, int rank, int ranks) {
    MeetingPoint meeting;
    meeting.rank = rank;
    meeting.ranks = ranks;
    meeting.store = store;
    meeting.job = "test";
    meeting.address = "127.0.0.1";
    return meeting;
}

enum class Ending { well, peer_failure, other_failure };

struct RankOutcome {
    Ending ending = Ending::well;
    std::string reason;
};

template <typename Act>
RankOutcome outcome_of(const Act& act) {
    try {
        act();
        return {};
    } catch (const PeerFailure& failure) {
        return {Ending::peer_failure, failure.what()};
    } catch (const std::exception& failure) {
        return {Ending::other_failure, failure.what()};
    }
}

// Runs act(rank) in a thread for each rank. Checks of Catch2 belong to the main thread: what is to
// be checked is left behind for it.
template <typename Act>
std::vector<RankOutcome> on_threads(int ranks, const Act& act) {
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&outcomes, &act, rank] {
            outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] { act(rank); });
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return outcomes;
}

// Connects the ranks and runs act(connection, rank) on each.
template <typename Act>
std::vector<RankOutcome> on_ranks(int ranks, const Act& act) {
    const TemporaryDirectory directory;
    return on_threads(ranks, [&](int rank) {
        GlooConnection connection(meeting_in(directory.path(), rank, ranks));
        act(connection, rank);
    });
}

inline std::string first_reason(const std::vector<RankOutcome>& outcomes) {
    for (const RankOutcome& outcome : outcomes) {
        if (outcome.ending != Ending::well) {
            return outcome.reason;
        }
    }
    return "";
}

inline void require_well(const std::vector<RankOutcome>& outcomes) {
    const std::string reason = first_reason(outcomes);
    INFO(reason);
    REQUIRE(reason.empty());
}

}  // namespace bucketwise::testing
