// A rank's place among the others of a step, and the communicators it has there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/link/network/algorithm.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Ranks that share parameters follow one another; the ranks of equal place in each such group hold
// the same shards. Where nothing is sharded, every rank is a group of its own.
struct RankPlace {
    std::int64_t rank = 0;  // among the ranks that share parameters
    std::int64_t ranks = 1;
    std::int64_t replica = 0;  // the number of their group
    std::int64_t replicas = 1;
    std::int64_t fewer = 1;  // ranks among which backward gathers again; `ranks`: all
    bool operator==(const RankPlace&) const = default;

    [[nodiscard]] std::int64_t of_all() const { return replica * ranks + rank; }
    [[nodiscard]] std::int64_t all() const { return replicas * ranks; }
    [[nodiscard]] bool gathers_among_fewer() const { return fewer < ranks; }
};

// The place of `rank` of so many. Precondition (asserted): a scenario that shards has as many.
RankPlace rank_place(const Scenario& scenario, std::int64_t rank, std::int64_t ranks);

// Throws InputError, for `file`, where real ranks cannot run the scenario.
void check_replayed(const Scenario& scenario, const std::string& file);

// C: a communicator.
template <typename C>
class CommunicatorsAmong {
  public:
    // Every collective is among all.
    explicit CommunicatorsAmong(C& all) : all_{&all, &all, &all, &all} {}

    // `among`: makes the communicator of some ranks, by their numbers among all, rising;
    // collective.
    template <typename Make>
    CommunicatorsAmong(const RankPlace& place, C& all, const Make& among)
        : CommunicatorsAmong(all) {
        const auto set = [&](Among those, std::int64_t stride, std::int64_t first,
                             std::int64_t count) {
            std::vector<std::int64_t> ranks;
            for (std::int64_t i = 0; i < count; ++i) {
                ranks.push_back(first + i * stride);
            }
            all_[static_cast<std::size_t>(those)] = &among(ranks);
        };
        const std::int64_t first = place.replica * place.ranks;
        const bool has_replicas = place.replicas > 1 && place.ranks > 1;
        if (has_replicas) {
            set(Among::sharing, 1, first, place.ranks);
            all_[static_cast<std::size_t>(Among::fewer)] = &of(Among::sharing);
        }
        if (place.gathers_among_fewer()) {
            set(Among::fewer, 1, first + place.rank / place.fewer * place.fewer, place.fewer);
        }
        if (has_replicas) {
            set(Among::replicas, place.ranks, place.rank, place.replicas);
        }
    }

    [[nodiscard]] C& of(Among among) const { return *all_[static_cast<std::size_t>(among)]; }
    // The one that sharded steps use for a kind of collective.
    [[nodiscard]] C& of_kind(CollectiveKind kind) const {
        return of(kind == CollectiveKind::all_reduce ? Among::replicas : Among::sharing);
    }

  private:
    std::array<C*, 4> all_;  // in the order of Among
};

}  // namespace bucketwise
