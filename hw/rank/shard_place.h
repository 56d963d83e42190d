// A rank's place among those of a sharded step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/link/network/algorithm.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Ranks that share parameters follow one another; in hsdp the ranks of equal place in each such
// group hold the same shards.
struct ShardPlace {
    std::int64_t rank = 0;  // among the ranks that share parameters
    std::int64_t ranks = 1;
    std::int64_t replica = 0;  // the number of their group
    std::int64_t replicas = 1;
    std::int64_t fewer = 1;  // ranks among which backward gathers again; `ranks`: all
    bool operator==(const ShardPlace&) const = default;

    [[nodiscard]] std::int64_t of_all() const { return replica * ranks + rank; }
    [[nodiscard]] std::int64_t all() const { return replicas * ranks; }
    [[nodiscard]] bool gathers_among_fewer() const { return fewer < ranks; }
};

// Precondition (asserted): the scenario shards, and `rank` is one of its ranks.
ShardPlace shard_place(const Scenario& scenario, std::int64_t rank);

// Throws InputError, for `file`, where real ranks cannot run the scenario, which shards.
void check_shard_ranks(const Scenario& scenario, const std::string& file);

enum class Sharers : std::uint8_t {
    sharing,    // the ranks that share parameters
    gathering,  // the fewer of these among which backward gathers; all of them, if there are none
    replicas    // the ranks that hold the same shards; all ranks, if this one is alone
};

// The communicators of a rank in sharded steps. C: a communicator.
template <typename C>
struct ShardCommunicators {
    C& all;  // by which ranks meet, and measure messages alone
    C& sharing;
    C& gathering;
    C& replicas;

    // `among`: makes the communicator of some ranks, by their numbers among all, rising;
    // collective.
    template <typename Among>
    static ShardCommunicators made(const ShardPlace& place, C& all, const Among& among) {
        const auto strided = [&](std::int64_t stride, std::int64_t first,
                                 std::int64_t count) -> C& {
            std::vector<std::int64_t> ranks;
            for (std::int64_t i = 0; i < count; ++i) {
                ranks.push_back(first + i * stride);
            }
            return among(ranks);
        };
        const std::int64_t first = place.replica * place.ranks;
        C& sharing = place.replicas > 1 ? strided(1, first, place.ranks) : all;
        C& gathering = place.gathers_among_fewer()
                           ? strided(1, first + place.rank / place.fewer * place.fewer, place.fewer)
                           : sharing;
        return {all, sharing, gathering,
                place.replicas > 1 ? strided(place.ranks, place.rank, place.replicas) : all};
    }

    [[nodiscard]] C& of(Sharers sharers) const {
        return sharers == Sharers::sharing     ? sharing
               : sharers == Sharers::gathering ? gathering
                                               : replicas;
    }
    // The communicator that steps use for a kind of collective.
    [[nodiscard]] C& of_kind(CollectiveKind kind) const {
        return kind == CollectiveKind::all_reduce ? replicas : sharing;
    }
};

}  // namespace bucketwise
