#include "sim/optimum/optimal_groups.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/sharding/modules.h"

namespace bucketwise {
namespace {

constexpr int most_evaluations = 1500;
constexpr std::size_t most_starts = 3;

// Whether a group ends with each block but the last.
using BlockEnds = std::vector<bool>;

class GroupSearch {
  public:
    GroupSearch(const Scenario& scenario, const ShardedInput& input, const Progress& progress)
        : scenario_(scenario),
          input_(input),
          progress_(progress),
          blocks_(blocks_of(transformed(input.step.workload.gradients, &Gradient::name))) {}

    [[nodiscard]] bool has_blocks() const { return blocks_.size() > 1; }

    void climb_from(std::int64_t together) {
        BlockEnds cuts = cuts_of(together);
        consider(cuts);
        for (bool improved = true; improved && evaluations_ < most_evaluations;) {
            improved = false;
            for (const BlockEnds& next : neighbours(cuts)) {
                if (evaluations_ < most_evaluations && consider(next)) {
                    cuts = next;
                    improved = true;
                    break;
                }
            }
        }
    }

    [[nodiscard]] std::optional<OptimalGroups> best() const {
        return best_ ? std::optional(OptimalGroups{*best_, evaluations_}) : std::nullopt;
    }

  private:
    [[nodiscard]] bool must_cut(std::size_t after) const {
        return grouped_blocks({blocks_[after], blocks_[after + 1]}, 2).size() == 2;
    }

    [[nodiscard]] BlockEnds cuts_of(std::int64_t together) const {
        BlockEnds cuts;
        for (const std::vector<std::string>& group : grouped_blocks(blocks_, together)) {
            cuts.insert(cuts.end(), group.size() - 1, false);
            cuts.push_back(true);
        }
        cuts.pop_back();
        return cuts;
    }

    // One boundary more, less, or one block further.
    [[nodiscard]] std::vector<BlockEnds> neighbours(const BlockEnds& cuts) const {
        std::vector<BlockEnds> all;
        for (std::size_t i = 0; i < cuts.size(); ++i) {
            if (must_cut(i)) {
                continue;
            }
            BlockEnds next = cuts;
            next[i] = !next[i];
            all.push_back(next);
            for (const std::size_t other : {i - 1, i + 1}) {
                if (other < cuts.size() && cuts[i] && !cuts[other]) {
                    BlockEnds moved = next;
                    moved[other] = true;
                    all.push_back(std::move(moved));
                }
            }
        }
        return all;
    }

    // Whether it is the best so far.
    bool consider(const BlockEnds& cuts) {
        if (const auto [known, is_new] = known_.try_emplace(cuts, true); !is_new) {
            return false;
        }
        ++evaluations_;
        progress_(static_cast<double>(evaluations_) / most_evaluations);
        ShardedInput other = input_;
        other.request.groups = groups_of(cuts);
        ShardedEvaluation found = evaluate_sharded(scenario_, other);
        const bool is_better = found.memory.fits() && (!best_ || found.step() < best_->step());
        if (is_better) {
            best_ = std::move(found);
        }
        return is_better;
    }

    [[nodiscard]] std::vector<std::vector<std::string>> groups_of(const BlockEnds& cuts) const {
        std::vector<std::vector<std::string>> groups{{blocks_.front()}};
        for (std::size_t i = 0; i < cuts.size(); ++i) {
            if (cuts[i]) {
                groups.emplace_back();
            }
            groups.back().push_back(blocks_[i + 1]);
        }
        return groups;
    }

    const Scenario& scenario_;
    const ShardedInput& input_;
    const Progress& progress_;
    std::vector<std::string> blocks_;
    std::map<BlockEnds, bool> known_;
    std::optional<ShardedEvaluation> best_;
    int evaluations_ = 0;
};

// Layers together of the fastest even groupings that fit, with the advised knobs.
std::vector<std::int64_t> starts(const ShardedPrediction& prediction) {
    std::vector<const ShardedEvaluation*> rows;
    for (const ShardedEvaluation& row : prediction.sweep) {
        ShardingRequest alike = row.request;
        alike.layers_per_group = prediction.advised().request.layers_per_group;
        if (alike == prediction.advised().request && row.request.layers_per_group > 0 &&
            row.memory.fits()) {
            rows.push_back(&row);
        }
    }
    std::ranges::stable_sort(rows, {}, [](const ShardedEvaluation* row) { return row->step(); });
    rows.resize(std::min(rows.size(), most_starts));
    return transformed(rows,
                       [](const ShardedEvaluation* row) { return row->request.layers_per_group; });
}

}  // namespace

std::optional<OptimalGroups> optimal_groups(const Scenario& scenario, const ShardedInput& input,
                                            const ShardedPrediction& prediction,
                                            const Progress& progress) {
    invariant(input.request.strategy != ShardedStrategy::zero3, "fully_shard groups modules");
    ShardedInput with_knobs = input;
    with_knobs.request = prediction.advised().request;
    GroupSearch search(scenario, with_knobs, progress);
    if (!search.has_blocks()) {
        return std::nullopt;
    }
    for (const std::int64_t together : starts(prediction)) {
        search.climb_from(together);
    }
    return search.best();
}

}  // namespace bucketwise
