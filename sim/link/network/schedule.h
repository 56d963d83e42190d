// A schedule: which messages a collective is made of and what each of them waits for.
//
// It is acted out by actors, one per rank, or for trees one per rank, tree and direction, each
// times the number of chunks a buffer is cut into where chunks follow one another. An actor takes
// its steps in order: it awaits needs() messages of a step, the first of them its start, then
// sends what sends() says, and goes on to the next step. Messages name the step of their receiver
// that they are for. No list of messages is ever made, so a schedule takes memory for its ranks
// only, whatever it sends.
//
// Bytes: pieces are rounded up to whole bytes and all are of equal size, as libraries pad them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"

namespace bucketwise {

// The input of a schedule.
struct ScheduleRequest {
    CollectiveKind kind = CollectiveKind::all_reduce;  // not broadcast
    Algorithm algorithm = Algorithm::ring;
    Bytes bytes;  // whole buffer, as in sim/link/collective.h
    std::int64_t ranks = 1;
    // How many ranks, or groups of the level below, each level groups; their product is the number
    // of ranks. Hierarchical: a ring on each level. Trees: a chain on the first, trees of its heads
    // on the others. Empty: one level for all, of a ring or a tree.
    std::vector<std::int64_t> levels = {};
    std::int64_t chunks = 1;  // that follow one another through the collective
    // Rings: only so many ranks act, each for all that are a multiple of it away; 0: all. The
    // network must look alike from all of these.
    std::int64_t classes = 0;
    bool operator==(const ScheduleRequest&) const = default;
};

constexpr std::uint32_t no_connection = UINT32_MAX;  // stays on its rank

struct ChunkMessage {
    std::uint32_t connection = no_connection;  // index of a connection
    std::uint32_t actor = 0;                   // who receives it
    std::uint32_t step = 0;                    // the step it is for
    Bytes bytes;
};

// One sender and one receiver, ranks.
struct Endpoints {
    std::int64_t from = 0;
    std::int64_t to = 0;
    bool operator==(const Endpoints&) const = default;
};

class CollectiveSchedule {
  public:
    // Throws nothing; asserts what ScheduleRequest says.
    explicit CollectiveSchedule(const ScheduleRequest& request);

    [[nodiscard]] std::uint32_t actors() const { return actors_; }
    [[nodiscard]] std::uint32_t ranks() const { return ranks_; }  // that act
    [[nodiscard]] std::int64_t rank_of(std::uint32_t actor) const { return actor % ranks_; }
    // One per ordered pair of ranks that talk, or one of several that do, once each.
    [[nodiscard]] std::vector<Endpoints> connections() const;
    // The messages of all actors together, those that stay on their rank included.
    [[nodiscard]] std::uint64_t messages() const;

    [[nodiscard]] std::uint32_t steps(std::uint32_t actor) const {
        switch (form_) {
            case Form::rings:
            case Form::direct:
                return steps_;
            case Form::exchange:
                return actor % ranks_ < core_ ? steps_ : 2;
            case Form::trees:
                return chunks_;
        }
        return 0;
    }

    // Messages to await in this step. Every actor's first one includes its start.
    [[nodiscard]] std::uint32_t needs(std::uint32_t actor, std::uint32_t step) const {
        switch (form_) {
            case Form::rings:
                return 1;
            case Form::direct:
                return step == 0 ? 1 : ranks_ - 1;
            case Form::exchange:
                return exchange_needs(actor % ranks_, step);
            case Form::trees:
                return tree_needs(actor, step);
        }
        return 0;
    }

    // Calls send(ChunkMessage) for each message an actor sends once a step's messages are there.
    template <typename Send>
    void sends(std::uint32_t actor, std::uint32_t step, Send&& send) const {
        switch (form_) {
            case Form::rings:
                return ring_sends(actor, step, send);
            case Form::direct:
                return direct_sends(actor, step, send);
            case Form::exchange:
                return exchange_sends(actor, step, send);
            case Form::trees:
                return tree_sends(actor, step, send);
        }
    }

  private:
    enum class Form : std::uint8_t { rings, direct, exchange, trees };

    // Steps of a ring among ranks that are `stride` apart.
    struct Stage {
        std::uint32_t end = 0;  // the first step after it
        std::uint32_t size = 1;
        std::uint32_t stride = 1;
        std::uint32_t first_connection = 0;
        Bytes bytes;  // of each message
    };
    static constexpr std::size_t most_levels = 8;

    struct TreePlace {
        std::int32_t parent = -1;
        std::array<std::int32_t, 3> children{-1, -1, -1};
        std::uint32_t child_count = 0;
    };

    void plan_rings(const ScheduleRequest& request);
    void plan_direct(const ScheduleRequest& request);
    void plan_exchange(const ScheduleRequest& request);
    void plan_trees(const ScheduleRequest& request);
    void hang(std::int64_t tree, std::int64_t rank, std::int64_t parent);

    template <typename Send>
    void ring_sends(std::uint32_t actor, std::uint32_t step, Send&& send) const {
        if (step + 1 >= steps_) {
            return;
        }
        const Stage* stage = stages_.data();
        while (step >= stage->end) {
            ++stage;
        }
        // Each of several chunks has actors of its own; with one chunk there is nothing to divide.
        const std::uint32_t chunk = chunks_ == 1 ? 0 : actor / ranks_;
        const std::uint32_t rank = actor - chunk * ranks_;
        std::uint32_t next = rank + stage->stride;
        const bool flat = stage->stride == 1 && stage->size >= ranks_;
        if (flat) {
            next = next < ranks_ ? next : 0;
        } else {
            next = ring_neighbour(rank, *stage) % ranks_;
        }
        send(ChunkMessage{stage->first_connection + rank, chunk * ranks_ + next, step + 1,
                          stage->bytes});
    }

    // The next rank of the stage's ring; of folded ranks, one that it stands for.
    static std::uint32_t ring_neighbour(std::uint32_t rank, const Stage& stage) {
        const std::uint32_t place = rank / stage.stride % stage.size;
        return place + 1 < stage.size ? rank + stage.stride : rank - place * stage.stride;
    }

    template <typename Send>
    void direct_sends(std::uint32_t actor, std::uint32_t step, Send&& send) const {
        if (step + 1 >= steps_) {
            return;
        }
        const std::uint32_t rank = actor % ranks_;
        for (std::uint32_t k = 1; k < ranks_; ++k) {
            const std::uint32_t peer = rank + k < ranks_ ? rank + k : rank + k - ranks_;
            send(ChunkMessage{rank * (ranks_ - 1) + k - 1, actor - rank + peer, step + 1, piece_});
        }
    }

    [[nodiscard]] std::uint32_t exchange_needs(std::uint32_t rank, std::uint32_t step) const {
        if (rank >= core_) {
            return 1;
        }
        const bool awaits_folded = step == 1 && rank + core_ < ranks_;
        return step == 0 || step > 1 || awaits_folded ? 1 : 0;
    }

    // Step 0: ranks beyond the power of two hand their vector to a partner. Steps 1 to 2 L: with
    // distance 1, 2, 4 ... halving pieces, then back. Step 2 L + 1: the result for the partner.
    template <typename Send>
    void exchange_sends(std::uint32_t actor, std::uint32_t step, Send&& send) const {
        const std::uint32_t rank = actor % ranks_;
        const std::uint32_t base = actor - rank;
        const std::uint32_t own = rank * (doublings_ + 1);
        if (rank >= core_) {
            if (step == 0) {
                send(ChunkMessage{own + doublings_, base + rank - core_, 1, whole_});
            }
            return;
        }
        if (step == 0) {
            return;
        }
        if (step <= 2 * doublings_) {
            const std::uint32_t k = step <= doublings_ ? step - 1 : 2 * doublings_ - step;
            send(ChunkMessage{own + k, base + (rank ^ (1U << k)), step + 1, pieces_[k]});
        } else if (rank + core_ < ranks_) {
            send(ChunkMessage{own + doublings_, base + rank + core_, 1, whole_});
        }
    }

    // Among the actors of a tree those that reduce come first.
    [[nodiscard]] std::uint32_t tree_needs(std::uint32_t actor, std::uint32_t step) const {
        const std::uint32_t start = step == 0 ? 1 : 0;
        const std::uint32_t group = actor / ranks_;
        const TreePlace& place = places_[group / 2 * ranks_ + actor % ranks_];
        return start + (group % 2 == 0 ? place.child_count : 1U);
    }

    template <typename Send>
    void tree_sends(std::uint32_t actor, std::uint32_t step, Send&& send) const {
        const std::uint32_t group = actor / ranks_;
        const std::uint32_t rank = actor % ranks_;
        const std::uint32_t tree = group / 2;
        const TreePlace& place = places_[tree * ranks_ + rank];
        const std::uint32_t own = (tree * ranks_ + rank) * 4;
        if (group % 2 == 0) {
            if (place.parent >= 0) {
                const auto parent = static_cast<std::uint32_t>(place.parent);
                send(ChunkMessage{own, group * ranks_ + parent, step, piece_});
            } else {
                send(ChunkMessage{no_connection, actor + ranks_, step, piece_});
            }
            return;
        }
        for (std::uint32_t side = 0; side < place.child_count; ++side) {
            const auto child = static_cast<std::uint32_t>(place.children[side]);
            send(ChunkMessage{own + 1 + side, group * ranks_ + child, step, piece_});
        }
    }

    Form form_ = Form::rings;
    std::uint32_t ranks_ = 1;  // that act
    std::uint32_t chunks_ = 1;
    std::uint32_t actors_ = 1;
    std::uint32_t steps_ = 1;
    std::vector<Stage> stages_;          // rings
    std::vector<Endpoints> ring_pairs_;  // rings: by connection
    Bytes piece_;                        // direct, trees: of each message
    Bytes whole_;                        // exchange: of a folded vector
    std::uint32_t core_ = 1;             // exchange: the largest power of two up to the ranks
    std::uint32_t doublings_ = 0;        // its logarithm
    std::vector<Bytes> pieces_;          // exchange: by doubling
    std::vector<TreePlace> places_;      // trees: by tree and rank
};

}  // namespace bucketwise
