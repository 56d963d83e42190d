// What a collective costs: per algorithm, the number of sequential steps and the bytes each rank
// puts on the wire. time = launch + steps x latency + bytes on the wire / bandwidth.
//
// n is the whole buffer: the reduced tensor of an all-reduce, the gathered one of an all-gather,
// the tensor to be scattered of a reduce-scatter. p is the number of ranks. One rank takes no
// steps. The functions per algorithm are in collective.cpp, each documented by its two lines.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/link.h"
#include "sim/units.h"

namespace bucketwise {

enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast };

std::string_view name_of(CollectiveKind kind);

// The group of ranks a collective spans.
struct RankGroup {
    std::int64_t ranks = 1;
    std::int64_t ranks_per_node = 1;  // divides ranks; only hierarchical looks at it
    bool operator==(const RankGroup&) const = default;
};

struct WireCost {
    std::int64_t steps = 0;  // sequential messages, each paying the link's latency
    Share wire{0, 1};        // bytes sent by the busiest rank, as a share of n
    bool operator==(const WireCost&) const = default;
};

// Steps and wire share on p equal ranks. Precondition (asserted): ranks >= 1 and the algorithm is
// not hierarchical, which spans two links and so has no single pair.
WireCost wire_cost(CollectiveKind kind, Algorithm algorithm, std::int64_t ranks);

// Time of one collective alone on the link. Precondition (asserted): a hierarchical link has two
// tiers and ranks_per_node divides ranks.
Duration collective_time(CollectiveKind kind, Bytes n, const RankGroup& group,
                         const LinkParameters& link);

}  // namespace bucketwise
