#include "import/nccl_tests/nccl_tests_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

constexpr std::int64_t gpus_of_a_node = 8;
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

void contradict(const NcclTestsLog& log, const NcclTestsRun& run, const std::string& expected,
                const std::string& got) {
    throw InputError(log.file, fmt::format("{} {}", log.json ? "document" : "line", run.line),
                     expected, got);
}

std::string plural_of(CollectiveKind kind) {
    return fmt::format("{}s", name_of(kind));
}

namespace {

std::string range_text(const InferredRanks& inferred) {
    return inferred.is_one() ? fmt::format("{}", inferred.fewest)
                             : fmt::format("{} to {}", inferred.fewest, inferred.most);
}

// The program computed busbw from the number of ranks, so busbw decides over a list of devices,
// which may be cut off.
Told ranks_in_log(const NcclTestsLog& log, const NcclTestsRun& run, const InferredRanks& inferred) {
    const std::string from_rows =
        run.kind == CollectiveKind::all_reduce
            ? fmt::format("busbw / algbw of {} times says so", inferred.agreeing)
            : fmt::format("size / count and busbw / algbw of {} times say so", inferred.agreeing);
    if (run.ranks == 0) {
        return inferred.is_one() ? Told{inferred.fewest, from_rows} : Told{};
    }
    if (agrees_with_ranks(run.kind, run.rows, run.ranks)) {
        return {run.ranks, run.ranks_from};
    }
    if (inferred.is_known() && inferred.fewest > run.ranks) {
        return inferred.is_one()
                   ? Told{inferred.fewest,
                          fmt::format("{}; {} has only {}", from_rows, run.ranks_from, run.ranks)}
                   : Told{};
    }
    contradict(
        log, run,
        fmt::format("{} on {} ranks, as {} says", plural_of(run.kind), run.ranks, run.ranks_from),
        inferred.is_known()
            ? fmt::format("busbw / algbw of {} on {}", plural_of(run.kind), range_text(inferred))
            : std::string("a busbw / algbw that no number of ranks explains"));
}

// --- nodes ---

// The number of listed ranks of each host, in the order of the list.
std::vector<std::int64_t> ranks_by_host(const NcclTestsRun& run) {
    if (run.devices.empty()) {
        return {};
    }
    std::vector<std::pair<std::string_view, std::int64_t>> hosts;
    for (const NcclTestsDevice& device : run.devices) {
        if (device.group != run.devices.front().group) {
            continue;
        }
        const auto known = std::ranges::find(hosts, device.host,
                                             &std::pair<std::string_view, std::int64_t>::first);
        if (known == hosts.end()) {
            hosts.emplace_back(device.host, 1);
        } else {
            ++known->second;
        }
    }
    // JSON lists one device of each process.
    const std::int64_t each =
        std::max<std::int64_t>(run.listed / static_cast<std::int64_t>(run.devices.size()), 1);
    return transformed(hosts, [&](const auto& host) { return each * host.second; });
}

// In a list that was cut off, the first host is complete if another follows it; the others have as
// many ranks. A cut list of one host tells nothing.
Told nodes_told(const NcclTestsRun& run) {
    if (!run.nodes_listed) {
        return {run.nodes, "NCCL's own lines say so"};
    }
    const std::vector<std::int64_t> hosts = ranks_by_host(run);
    if (hosts.empty()) {
        return {};
    }
    const auto [fewest, most] = std::ranges::minmax(hosts);
    const std::string each =
        fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most);
    if (run.listed >= run.ranks) {
        return {run.nodes,
                fmt::format("the log names {}, with {} {}{}", run.nodes == 1 ? "it" : "them", each,
                            most == 1 ? "rank" : "ranks", run.nodes == 1 ? "" : " each")};
    }
    const std::int64_t first = hosts.front();
    if (hosts.size() == 1 || run.ranks % first != 0) {
        return {};
    }
    return {run.ranks / first,
            fmt::format("the device list, which was cut off, has {} {} on its first host", first,
                        first == 1 ? "rank" : "ranks")};
}

}  // namespace

Told ranks_of(const NcclTestsLog& log, const NcclTestsRun& run, std::int64_t asked) {
    const std::int64_t multiple = std::max<std::int64_t>(run.gpus_per_process, 1);
    const InferredRanks inferred = infer_ranks(run.kind, run.rows, multiple);
    Told told = ranks_in_log(log, run, inferred);
    if (asked == 0) {
        if (told.number == 0) {
            contradict(log, run,
                       run.ranks == 0
                           ? "--ranks, as the log has no list of devices"
                           : fmt::format("--ranks, as {} has only {}", run.ranks_from, run.ranks),
                       inferred.is_known()
                           ? fmt::format("a busbw / algbw that fits {} ranks", range_text(inferred))
                           : std::string("a busbw that does not tell either"));
        }
        return told;
    }
    if (told.number > 0 && told.number != asked) {
        contradict(log, run, fmt::format("--ranks {}, as {}", told.number, told.how),
                   fmt::format("--ranks {}", asked));
    }
    if (!agrees_with_ranks(run.kind, run.rows, asked) || asked % multiple != 0) {
        contradict(log, run,
                   inferred.is_known()
                       ? fmt::format("--ranks {}, as busbw / algbw says", range_text(inferred))
                       : fmt::format("--ranks that explains busbw / algbw and {} GPUs per process",
                                     multiple),
                   fmt::format("--ranks {}", asked));
    }
    return told.number > 0 ? told : Told{asked, "--ranks"};
}

Told nodes_of(const NcclTestsLog& log, const NcclTestsRun& run,
              std::optional<std::int64_t> ranks_per_node) {
    Told told = nodes_told(run);
    if (ranks_per_node) {
        const std::int64_t per_node = *ranks_per_node;
        if (run.ranks % per_node != 0) {
            contradict(log, run, fmt::format("--ranks-per-node that divides {} ranks", run.ranks),
                       std::to_string(per_node));
        }
        if (told.number > 0 && told.number != run.ranks / per_node) {
            contradict(log, run,
                       fmt::format("--ranks-per-node {} for {} nodes, as {}",
                                   run.ranks / told.number, told.number, told.how),
                       std::to_string(per_node));
        }
        return {run.ranks / per_node, "--ranks-per-node"};
    }
    if (told.number > 0) {
        return told;
    }
    return {(run.ranks + gpus_of_a_node - 1) / gpus_of_a_node,
            fmt::format("assumed, as {}: 8 GPUs a node; --ranks-per-node says otherwise",
                        run.listed > 0 ? "the device list was cut off" : "the log names no hosts")};
}

}  // namespace bucketwise
