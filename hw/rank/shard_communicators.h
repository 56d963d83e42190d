// Who a rank exchanges what with in sharded steps. C: a communicator.
#pragma once

#include "sim/link/network/algorithm.h"

namespace bucketwise {

template <typename C>
struct ShardCommunicators {
    C& all;        // what ranks meet by, and what is measured of messages alone
    C& sharing;    // those that share parameters
    C& gathering;  // the fewer of these that backward gathers among; `sharing`, if all do
    C& replicas;   // those that hold the same shards; `all`, if that is this rank alone

    // Who steps have collectives of a kind among.
    [[nodiscard]] C& of_kind(CollectiveKind kind) const {
        return kind == CollectiveKind::all_reduce ? replicas : sharing;
    }
};

}  // namespace bucketwise
