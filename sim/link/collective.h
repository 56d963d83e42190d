// Cost of a collective: per algorithm, the number of sequential steps, the messages sent in them
// and the bytes each rank puts on the wire.
//   time = launch + meeting + steps x latency + messages x message + bytes on the wire / bandwidth
// All messages of a step share its latency, on their way at once; each takes `message` of its
// sender's time (o and g of LogGP: Alexandrov, Ionescu, Schauser, Scheiman 1995). Where
// every step sends one message only their sum counts, and `message` may stay 0.
//
// Where all ranks share the processors of one machine, steps, messages and bytes are work of these,
// and with more ranks than processors all of it takes ranks / processors times as long.
//
// n is the whole buffer: the reduced tensor of an all-reduce, the gathered one of an all-gather,
// the tensor to be scattered of a reduce-scatter. p is the number of ranks. One rank takes no
// steps. The functions per algorithm are in collective.cpp, each documented by its two lines.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/link/link.h"

namespace bucketwise {

// The group of ranks a collective spans.
struct RankGroup {
    std::int64_t ranks = 1;
    std::int64_t ranks_per_node = 1;  // divides ranks; hierarchical without a topology looks at it
    bool operator==(const RankGroup&) const = default;
};

struct WireCost {
    std::int64_t steps = 0;     // one after another, each paying the link's latency
    Share wire{0, 1};           // bytes sent by the busiest rank, as a share of n
    std::int64_t messages = 0;  // sent one after another on the longest way through the steps
    bool operator==(const WireCost&) const = default;
};

// Steps, wire share and messages on p equal ranks. Precondition (asserted): ranks >= 1 and the
// algorithm is not hierarchical, which spans two links and so has no single pair.
WireCost wire_cost(CollectiveKind kind, Algorithm algorithm, std::int64_t ranks);

// Time of one collective alone on the link. Precondition (asserted): a hierarchical link without a
// topology has two tiers and ranks_per_node divides ranks; a topology has a place for every rank,
// and was prepared for them (prepare_topology in sim/link/link_topology.h).
Duration collective_time(CollectiveKind kind, Bytes n, const RankGroup& group,
                         const LinkParameters& link);

}  // namespace bucketwise
