#include "sim/optimum/optimal_groups.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/optimum/cut_search.h"
#include "sim/workload/modules.h"

namespace bucketwise {
namespace {

constexpr int most_evaluations = 1500;
constexpr std::size_t most_starts = 3;

// Groups are pieces of the line of blocks.
class GroupSearch {
  public:
    GroupSearch(const Scenario& scenario, const ShardedInput& input, const Progress& progress)
        : scenario_(scenario),
          input_(input),
          progress_(progress),
          blocks_(blocks_of(transformed(input.step.workload.gradients, &Gradient::name))) {}

    [[nodiscard]] bool has_blocks() const { return blocks_.size() > 1; }

    void climb_from(std::int64_t together) {
        Cuts cuts;
        for (const std::vector<std::string>& group : grouped_blocks(blocks_, together)) {
            cuts.push_back((cuts.empty() ? 0 : cuts.back()) + group.size());
        }
        const CutSearch search{blocks_.size(), [&](std::size_t begin) { return list_end(begin); },
                               [&](const Cuts& tried) { return step_of(tried); }};
        search.climb(std::move(cuts));
    }

    [[nodiscard]] std::optional<OptimalGroups> best() const {
        return best_ ? std::optional(OptimalGroups{*best_, evaluations_}) : std::nullopt;
    }

  private:
    // The end of the list that the block is in.
    [[nodiscard]] std::size_t list_end(std::size_t begin) const {
        const std::vector<std::string> rest(blocks_.begin() + static_cast<std::ptrdiff_t>(begin),
                                            blocks_.end());
        return begin + grouped_blocks(rest, std::ssize(rest)).front().size();
    }

    // Empty for groups that do not fit, and after too many evaluations.
    std::optional<Duration> step_of(const Cuts& cuts) {
        if (const auto known = known_.find(cuts); known != known_.end()) {
            return known->second;
        }
        if (evaluations_ >= most_evaluations) {
            return std::nullopt;
        }
        ++evaluations_;
        progress_(static_cast<double>(evaluations_) / most_evaluations);
        ShardedInput other = input_;
        other.request.groups.clear();
        auto block = blocks_.begin();
        for (const std::size_t end : cuts) {
            const auto past = blocks_.begin() + static_cast<std::ptrdiff_t>(end);
            other.request.groups.emplace_back(block, past);
            block = past;
        }
        Evaluation found = evaluate_sharded(scenario_, other);
        std::optional<Duration>& step = known_[cuts];
        if (found.fits()) {
            step = found.step();
            if (!best_ || found.step() < best_->step()) {
                best_ = std::move(found);
            }
        }
        return step;
    }

    const Scenario& scenario_;
    const ShardedInput& input_;
    const Progress& progress_;
    std::vector<std::string> blocks_;
    std::map<Cuts, std::optional<Duration>> known_;
    std::optional<Evaluation> best_;
    int evaluations_ = 0;
};

// Layers per group of the fastest even groupings that fit, with the advised knobs.
std::vector<std::int64_t> starts(const Prediction& prediction) {
    const ShardingRequest& advised = prediction.advised().sharded->request;
    std::vector<const Evaluation*> rows;
    for (const Evaluation& row : prediction.sweep) {
        ShardingRequest alike = row.sharded->request;
        alike.layers_per_group = advised.layers_per_group;
        if (alike == advised && row.sharded->request.layers_per_group > 0 && row.fits()) {
            rows.push_back(&row);
        }
    }
    std::ranges::stable_sort(rows, {}, [](const Evaluation* row) { return row->step(); });
    rows.resize(std::min(rows.size(), most_starts));
    return transformed(
        rows, [](const Evaluation* row) { return row->sharded->request.layers_per_group; });
}

}  // namespace

std::optional<OptimalGroups> optimal_groups(const Scenario& scenario, const ShardedInput& input,
                                            const Prediction& prediction,
                                            const Progress& progress) {
    invariant(input.request.strategy != ShardedStrategy::zero3, "fully_shard groups modules");
    ShardedInput with_knobs = input;
    with_knobs.request = prediction.advised().sharded->request;
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
