#include "import/nccl_tests/nccl_tests_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace bucketwise {
namespace {

constexpr std::int64_t most_ranks = 1'000'000;
// The share of telling times that must agree: a damaged digit must not decide.
constexpr double nearly_all = 0.8;

struct RankRange {
    std::int64_t fewest = 1;
    std::int64_t most = most_ranks;
};

// n of busbw / algbw = rounds (n - 1) / n.
double ranks_of(double rounds, double ratio) {
    return ratio < rounds ? std::min(rounds / (rounds - ratio), static_cast<double>(most_ranks))
                          : static_cast<double>(most_ranks);
}

// The number of ranks' parts in the size; 0: it has no parts.
std::int64_t parts_of(CollectiveKind kind, const NcclTestsRow& row) {
    const std::int64_t part = row.count * nccl_element_bytes(row.dtype);
    return kind == CollectiveKind::all_reduce || part == 0 ? 0 : row.bytes / part;
}

// Nothing where rounding leaves everything open.
std::optional<RankRange> range_of(CollectiveKind kind, const NcclTestsHalf& half) {
    if (half.algbw.lowest() <= 0) {
        return std::nullopt;
    }
    constexpr double rounding = 1e-6;  // some versions compute in single precision
    const double lowest =
        std::max(half.busbw.lowest(), 0.0) / half.algbw.highest() * (1 - rounding);
    const double highest = half.busbw.highest() / half.algbw.lowest() * (1 + rounding);
    const auto rounds = static_cast<double>(rounds_of(kind));
    const RankRange range{static_cast<std::int64_t>(std::ceil(ranks_of(rounds, lowest))),
                          static_cast<std::int64_t>(std::floor(ranks_of(rounds, highest)))};
    return range.most == most_ranks && range.fewest <= 2 ? std::nullopt : std::optional(range);
}

// Each time counts once, for its size and its busbw together.
std::vector<RankRange> ranges_of(CollectiveKind kind, const std::vector<NcclTestsRow>& rows) {
    std::vector<RankRange> ranges;
    for (const NcclTestsRow& row : rows) {
        const std::int64_t parts = parts_of(kind, row);
        for (const NcclTestsHalf& half : row.halves) {
            const auto range = range_of(kind, half);
            if (parts == 0 && range) {
                ranges.push_back(*range);
            } else if (parts > 0) {
                const bool agree = !range || (range->fewest <= parts && parts <= range->most);
                ranges.push_back(agree ? RankRange{parts, parts} : RankRange{most_ranks, 1});
            }
        }
    }
    return ranges;
}

}  // namespace

InferredRanks infer_ranks(CollectiveKind kind, const std::vector<NcclTestsRow>& rows,
                          std::int64_t multiple) {
    const std::vector<RankRange> ranges = ranges_of(kind, rows);
    // In multiples: how many ranges begin here less how many have ended.
    std::map<std::int64_t, std::int64_t> changes;
    for (const RankRange& range : ranges) {
        const std::int64_t fewest = (range.fewest + multiple - 1) / multiple;
        const std::int64_t most = range.most / multiple;
        if (fewest <= most) {
            ++changes[fewest];
            --changes[most + 1];
        }
    }
    InferredRanks inferred;
    inferred.telling = static_cast<std::int64_t>(ranges.size());
    std::int64_t agreeing = 0;
    bool open = false;
    for (const auto& [at, change] : changes) {
        if (open) {
            inferred.most = (at - 1) * multiple;
            open = false;
        }
        agreeing += change;
        if (agreeing > inferred.agreeing) {
            inferred.agreeing = agreeing;
            inferred.fewest = at * multiple;
            open = true;
        }
    }
    if (static_cast<double>(inferred.agreeing) <
        nearly_all * static_cast<double>(inferred.telling)) {
        return {};  // no number explains them
    }
    return inferred;
}

bool agrees_with_ranks(CollectiveKind kind, const std::vector<NcclTestsRow>& rows,
                       std::int64_t ranks) {
    const std::vector<RankRange> ranges = ranges_of(kind, rows);
    const auto agreeing = std::ranges::count_if(ranges, [&](const RankRange& range) {
        return range.fewest <= ranks && ranks <= range.most;
    });
    return static_cast<double>(agreeing) >= nearly_all * static_cast<double>(ranges.size());
}

}  // namespace bucketwise
