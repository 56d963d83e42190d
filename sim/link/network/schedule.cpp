#include "sim/link/network/schedule.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// In-order binary tree of 1 to ranks - 1 below the root 0: a rank with lowest bit b is at height
// log2 b, its parent has that bit cleared and the next one set, unless there is no such rank.
// Precondition: it is not the root.
std::int64_t tree_parent(std::int64_t rank, std::int64_t ranks) {
    const std::int64_t bit = rank & -rank;
    const std::int64_t up = (rank - bit) | (2 * bit);
    return up < ranks ? up : rank - bit;
}

}  // namespace

CollectiveSchedule::CollectiveSchedule(const ScheduleRequest& request) {
    constexpr std::int64_t most_ranks = 1 << 22;
    invariant(request.kind != CollectiveKind::broadcast, "a broadcast has no schedule");
    invariant(1 <= request.ranks && request.ranks <= most_ranks, "a schedule has ranks");
    invariant(1 <= request.chunks && request.chunks * request.ranks <= 8 * most_ranks,
              "a schedule has chunks");
    ranks_ = static_cast<std::uint32_t>(request.ranks);
    chunks_ = static_cast<std::uint32_t>(request.chunks);
    switch (request.algorithm) {
        case Algorithm::ring:
        case Algorithm::hierarchical:
            plan_rings(request);
            break;
        case Algorithm::direct:
            plan_direct(request);
            break;
        case Algorithm::recursive_halving_doubling:
            plan_exchange(request);
            break;
        case Algorithm::double_binary_tree:
            plan_trees(request);
            break;
        case Algorithm::nvls:
        case Algorithm::nccl:
            invariant(false, "this algorithm is known in closed form only");
    }
}

// Reduce-scatter level by level, all-reduce on the outermost, all-gather back.
void CollectiveSchedule::plan_rings(const ScheduleRequest& request) {
    std::vector<std::int64_t> levels = request.levels;
    if (request.algorithm == Algorithm::ring || levels.empty()) {
        levels = {request.ranks};
    }
    invariant(std::accumulate(levels.begin(), levels.end(), std::int64_t{1}, std::multiplies<>()) ==
                      request.ranks &&
                  levels.size() <= most_levels,
              "the levels group all ranks");
    const auto acting =
        static_cast<std::uint32_t>(request.classes == 0 ? request.ranks : request.classes);
    std::vector<Stage> rings;
    Bytes shard = divided(request.bytes, request.chunks);
    std::int64_t stride = 1;
    for (const std::int64_t size : levels) {
        if (size > 1) {
            shard = divided(shard, size);
            rings.push_back({.size = static_cast<std::uint32_t>(size),
                             .stride = static_cast<std::uint32_t>(stride),
                             .first_connection = static_cast<std::uint32_t>(ring_pairs_.size()),
                             .bytes = shard});
            for (std::uint32_t rank = 0; rank < acting; ++rank) {
                ring_pairs_.push_back({rank, ring_neighbour(rank, rings.back())});
            }
        }
        stride *= size;
    }
    const auto add = [this](Stage ring) {
        steps_ += ring.size - 1;
        ring.end = steps_ - 1;
        stages_.push_back(ring);
    };
    if (request.kind != CollectiveKind::all_gather) {
        std::for_each(rings.begin(), rings.end(), add);
    }
    if (request.kind != CollectiveKind::reduce_scatter) {
        std::for_each(rings.rbegin(), rings.rend(), add);
    }
    form_ = Form::rings;
    ranks_ = acting;
    actors_ = acting * chunks_;
}

void CollectiveSchedule::plan_direct(const ScheduleRequest& request) {
    form_ = Form::direct;
    actors_ = ranks_ * chunks_;
    piece_ = divided(divided(request.bytes, request.chunks), request.ranks);
    steps_ = ranks_ == 1 ? 1 : static_cast<std::uint32_t>(rounds_of(request.kind)) + 1;
}

void CollectiveSchedule::plan_exchange(const ScheduleRequest& request) {
    invariant(request.kind == CollectiveKind::all_reduce, "halving and doubling is an all-reduce");
    form_ = Form::exchange;
    actors_ = ranks_ * chunks_;
    core_ = std::bit_floor(ranks_);
    doublings_ = static_cast<std::uint32_t>(std::bit_width(core_) - 1);
    whole_ = divided(request.bytes, request.chunks);
    Bytes piece = whole_;
    for (std::uint32_t k = 0; k < doublings_; ++k) {
        piece = divided(piece, 2);
        pieces_.push_back(piece);
    }
    steps_ = 2 * doublings_ + 2;
}

// Two trees of groups' first ranks; the others of a group hang in a chain below theirs. The second
// tree is the first one's mirror image, or of an odd number the first one shifted by one, so that
// the inner groups of one are leaves of the other.
void CollectiveSchedule::plan_trees(const ScheduleRequest& request) {
    invariant(request.kind == CollectiveKind::all_reduce, "trees are of an all-reduce");
    form_ = Form::trees;
    constexpr std::int64_t trees = 2;
    actors_ = 2 * trees * ranks_;
    piece_ = divided(divided(request.bytes, 2), request.chunks);
    const std::int64_t chain = request.levels.empty() ? 1 : request.levels.front();
    const std::int64_t groups = request.ranks / chain;
    invariant(groups * chain == request.ranks, "the levels group all ranks");
    places_.resize(static_cast<std::size_t>(trees * request.ranks));
    const auto in_second = [&](std::int64_t group) {
        return groups % 2 == 0 ? groups - 1 - group : (group + 1) % groups;
    };
    for (std::int64_t tree = 0; tree < trees; ++tree) {
        for (std::int64_t group = 0; group < groups; ++group) {
            const auto first_rank = [&](std::int64_t of) {
                return (tree == 0 ? of : in_second(of)) * chain;
            };
            const std::int64_t here = first_rank(group);
            if (group > 0) {
                hang(tree, here, first_rank(tree_parent(group, groups)));
            }
            for (std::int64_t k = 1; k < chain; ++k) {
                hang(tree, here + k, here + k - 1);
            }
        }
    }
}

void CollectiveSchedule::hang(std::int64_t tree, std::int64_t rank, std::int64_t parent) {
    const std::int64_t first = tree * std::int64_t{ranks_};
    places_[static_cast<std::size_t>(first + rank)].parent = static_cast<std::int32_t>(parent);
    TreePlace& place = places_[static_cast<std::size_t>(first + parent)];
    place.children.at(place.child_count++) = static_cast<std::int32_t>(rank);
}

std::vector<Endpoints> CollectiveSchedule::connections() const {
    std::vector<Endpoints> pairs;
    switch (form_) {
        case Form::rings:
            return ring_pairs_;
        case Form::direct:
            for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
                for (std::uint32_t k = 1; k < ranks_; ++k) {
                    pairs.push_back({rank, (rank + k) % ranks_});
                }
            }
            return pairs;
        case Form::exchange:
            for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
                for (std::uint32_t k = 0; k < doublings_; ++k) {
                    // A folded rank has none of these; its own place stands for nobody.
                    pairs.push_back({rank, rank < core_ ? rank ^ (1U << k) : rank});
                }
                const std::uint32_t partner = rank < core_ ? rank + core_ : rank - core_;
                pairs.push_back({rank, partner < ranks_ ? partner : rank});
            }
            return pairs;
        case Form::trees:
            for (std::size_t i = 0; i < places_.size(); ++i) {
                const auto rank = static_cast<std::int64_t>(i % ranks_);
                const auto connect = [&](std::int32_t other) {
                    pairs.push_back({rank, other < 0 ? rank : other});
                };
                connect(places_[i].parent);
                std::for_each(places_[i].children.begin(), places_[i].children.end(), connect);
            }
            return pairs;
    }
    return pairs;
}

std::uint64_t CollectiveSchedule::messages() const {
    std::uint64_t count = 0;
    if (form_ == Form::rings) {
        return std::uint64_t{actors_} * (steps_ - 1);
    }
    for (std::uint32_t actor = 0; actor < actors_; ++actor) {
        for (std::uint32_t step = 0; step < steps(actor); ++step) {
            sends(actor, step, [&](const ChunkMessage&) { ++count; });
        }
    }
    return count;
}

}  // namespace bucketwise
