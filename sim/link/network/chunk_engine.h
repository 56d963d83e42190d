// Collectives message by message over the links of a network.
//
//  - A message takes the way of its connection. It moves at the connection's rate and arrives the
//    way's latency after its last byte has left. Messages of one connection go one after another.
//  - Where no link of a way can ever be short of bandwidth for all the connections that cross it,
//    the rate is that of the narrowest link, and the message costs one event. Elsewhere messages
//    get max-min fair shares (sim/link/network/fair_share.h), anew whenever one starts or ends.
//  - Ranks act as their schedule says (sim/link/network/schedule.h): a step begins once all it
//    waits for has arrived. Reducing takes no time of its own: measured bandwidths contain it.
//
// Memory: for the ranks, their connections, and the messages in flight.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/network/network.h"
#include "sim/link/network/schedule.h"

namespace bucketwise {

// One collective of a group of ranks.
struct CollectiveJob {
    ScheduleRequest schedule;
    std::vector<std::int64_t> placement = {};  // network ranks, by rank; empty: 0, 1, 2 ...
    std::vector<Duration> starts = {};         // by rank; empty: all at zero
    std::int64_t repetitions = 1;  // of the collective, one after another; 0: without end
    bool operator==(const CollectiveJob&) const = default;
};

struct JobRun {
    Duration end{0};               // when the last rank was done
    std::vector<Duration> finish;  // by acting rank
    bool operator==(const JobRun&) const = default;
};

struct CollectiveRun {
    std::vector<JobRun> jobs;
    bool complete = true;          // else it was too much work, and the rest means nothing
    std::uint64_t messages = 0;    // of all jobs, but those that stay on their rank
    std::size_t memory_bytes = 0;  // of connections, actors, flows and events at their most
    bool operator==(const CollectiveRun&) const = default;
};

// Runs until all jobs are done, but for those without end. Background flows of the topology run all
// along. Precondition (asserted): jobs' ranks are on the network, and one of the jobs ends.
// Gives up once flows have been shared out `most_sharing` times, each counted as often as it was.
CollectiveRun simulate_collectives(const Topology& topology, const Network& network,
                                   const std::vector<CollectiveJob>& jobs,
                                   std::uint64_t most_sharing = UINT64_MAX);

}  // namespace bucketwise
