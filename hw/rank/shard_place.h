// Where a rank stands among those of a sharded step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace bucketwise {

// Ranks that share parameters follow one another; of hsdp those of equal place in each such group
// hold the same shards.
struct ShardPlace {
    std::int64_t rank = 0;  // among the ranks that share parameters
    std::int64_t ranks = 1;
    std::int64_t replica = 0;  // which group of them
    std::int64_t replicas = 1;
    // Among how many backward gathers what forward has left; `ranks` where there are no fewer.
    std::int64_t fewer = 1;
    bool operator==(const ShardPlace&) const = default;

    [[nodiscard]] std::int64_t of_all() const { return replica * ranks + rank; }
    [[nodiscard]] std::int64_t all() const { return replicas * ranks; }
    [[nodiscard]] bool gathers_among_fewer() const { return fewer < ranks; }

    // By their numbers among all, rising. This rank is one of them.
    [[nodiscard]] std::vector<std::int64_t> sharing() const;
    [[nodiscard]] std::vector<std::int64_t> replicating() const;
    [[nodiscard]] std::vector<std::int64_t> gathering() const;
};

// Precondition (asserted): the scenario shards, and among its ranks, of which `rank` is one.
ShardPlace shard_place(const Scenario& scenario, std::int64_t rank);

// Throws InputError, of `file`, where real ranks cannot run the scenario, which shards.
void check_shard_ranks(const Scenario& scenario, const std::string& file);

}  // namespace bucketwise
