// Who a rank exchanges what with in sharded steps. C: a communicator.
#pragma once

namespace bucketwise {

template <typename C>
struct ShardCommunicators {
    C& all;        // what ranks meet by, and what is measured of messages alone
    C& sharing;    // those that share parameters
    C& gathering;  // the fewer of these that backward gathers among; `sharing`, if all do
    C& replicas;   // those that hold the same shards; this rank alone: none of its calls is used
};

}  // namespace bucketwise
