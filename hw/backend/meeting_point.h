// Where the ranks of a job find each other.
#pragma once

#include <chrono>
#include <string>

namespace bucketwise {

struct MeetingPoint {
    int rank = 0;
    int ranks = 1;
    // A directory that every rank sees, or "redis://HOST:PORT". Ranks that have met leave nothing
    // behind in it; those that did not may leave keys, over which the same `job` does not meet.
    std::string store;
    std::string job;        // prefix of the keys in the store, so that jobs can share it
    std::string address;    // numeric address to listen on; empty: that of `interface`
    std::string interface;  // network interface to listen on; used when `address` is empty
    std::chrono::milliseconds deadline{60'000};  // to meet, and for each collective
};

}  // namespace bucketwise
