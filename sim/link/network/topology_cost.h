// Cost of a collective on a regular topology, in closed form, and message by message where no
// closed form holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"
#include "sim/link/network/network.h"
#include "sim/link/network/schedule.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// One level of a regular topology that has several groups: GPUs of a node, nodes of a tier, sites.
struct TopologyLevel {
    std::int64_t size = 1;  // ranks of one of its groups
    Duration latency{0};    // from rank to rank across it
    // Share of one rank where all ranks of a group send across it at once.
    BytesPerSecond each;
    // Share of one group that alone sends to its neighbour, over all its NICs or uplinks.
    BytesPerSecond group;
    bool operator==(const TopologyLevel&) const = default;
};

// From the GPUs of a node up. Precondition (asserted): check_places() finds no fault.
std::vector<TopologyLevel> levels_of(const RegularTopology& topology, std::int64_t ranks);

// How the ranks of each level are grouped, for a hierarchical schedule; their product is `ranks`.
std::vector<std::int64_t> group_sizes(const RegularTopology& topology, std::int64_t ranks);

// Steps x latency + bytes / bandwidth of the algorithm on this topology. Each step of direct and of
// halving and doubling is as long as its slowest message, as if all ranks began it together. A ring
// is pipelined: the latency of every hop once a round, the bandwidth of the narrowest hop; it goes
// through nodes one after another and leaves each over all its NICs at once (as NCCL's rings
// together do). The hierarchical one runs a ring on each level. Broadcast: the pipelined chain of
// the ring, whatever the algorithm.
Duration topology_time(CollectiveKind kind, Algorithm algorithm, Bytes bytes, std::int64_t ranks,
                       const RegularTopology& topology);

// Most messages of a collective that is simulated message by message: some seconds' work, of a few
// sizes. Messages of rings mostly have links for themselves; those of trees share them, and in a
// direct exchange every message shares with all others.
constexpr std::uint64_t most_ring_messages = 20'000'000;
constexpr std::uint64_t most_tree_messages = 1'200'000;
constexpr std::uint64_t most_direct_messages = 140'000;

// How many pieces a buffer is cut into that follow one another through a ring whose links differ in
// speed, and through trees. More of them fill the slowest link better.
constexpr std::int64_t ring_pieces = 8;
constexpr std::int64_t tree_pieces = 64;

// The network a collective runs on. A ring or a tree leaves a node over all its NICs at once, as
// NCCL's rings or trees together do: they count as one.
Network network_for(Algorithm algorithm, const Topology& topology, std::int64_t ranks);

// The schedule of a collective with an algorithm on this topology. `classes`: whether ranks that
// look alike from the network may be simulated as one.
ScheduleRequest schedule_on(CollectiveKind kind, Algorithm algorithm, Bytes bytes,
                            std::int64_t ranks, const Topology& topology, bool classes);

// Messages of the collective, those included that stay on their rank.
std::uint64_t messages_of(const ScheduleRequest& request);

// Why it has too many messages to be simulated by them; the pointer is below the link. Empty: it
// has not.
std::optional<TopologyFault> check_messages(const ScheduleRequest& request);

// Why no algorithm with a ring on each level can run on this topology, as a level's last group is
// not full; the pointer is below the link. Empty: it can.
std::optional<TopologyFault> check_levels(const RegularTopology& topology, std::int64_t ranks);

// Most recomputed shares of flows in one simulated collective: a second's work.
constexpr std::uint64_t most_sharing = 20'000'000;

// The fault of a collective beyond most_sharing.
TopologyFault too_much_sharing();

}  // namespace bucketwise
