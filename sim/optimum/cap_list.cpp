#include "sim/optimum/cap_list.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/base/transformed.h"
#include "sim/plan/cap.h"

namespace bucketwise {
namespace {

// When the last bucket of an accumulator closes, which can change the order of buckets.
enum class LastBucket : std::uint8_t { with_its_last_gradient, when_all_have_joined, either };

bool empty(const CapRange& range) {
    return range.highest && *range.highest < range.lowest;
}

// The caps that close the bucket between two cuts of an accumulator.
CapRange caps_for(const GradientLine& line, std::size_t begin, std::size_t end, Closing closing,
                  LastBucket last) {
    const Bytes size = line.bytes(begin, end);
    const Bytes without_last = line.bytes(begin, end - 1);
    const bool is_last = end == line.longest_end(begin);
    if (closing == Closing::strict) {
        // A gradient larger than the cap is alone, so a bucket of one also closes at any lower cap.
        const Bytes lowest = without_last == Bytes{0} ? Bytes{1} : size;
        return {std::max(lowest, Bytes{1}),
                is_last ? std::nullopt : std::optional(line.bytes(begin, end + 1) - Bytes{1})};
    }
    if (is_last && last == LastBucket::when_all_have_joined) {
        return {size + Bytes{1}, std::nullopt};
    }
    const bool any_above = is_last && last == LastBucket::either;
    return {without_last + Bytes{1}, any_above ? std::nullopt : std::optional(size)};
}

// The range of each cap of a list with which the policy closes the buckets at these cuts. `last_of`
// is asked about the k-th accumulator of a dtype. Empty where no list does.
std::vector<CapRange> ranges_of(const GradientLine& line, const std::vector<Gradient>& gradients,
                                const Cuts& cuts, Closing closing,
                                const std::function<LastBucket(std::size_t)>& last_of) {
    std::vector<CapRange> ranges(1);
    std::size_t begin = 0;
    std::size_t accumulator = 0;
    std::size_t closed = 0;  // its buckets so far
    for (const std::size_t end : cuts) {
        const std::size_t first = std::exchange(begin, end);
        if (gradients[static_cast<std::size_t>(line.gradient(first))].sparse) {
            continue;
        }
        ranges.resize(std::max(ranges.size(), closed + 1));
        CapRange& range = ranges[closed];
        range = common(range, caps_for(line, first, end, closing, last_of(accumulator)));
        if (empty(range)) {
            return {};
        }
        const bool last = end == line.longest_end(first);
        accumulator += last ? 1 : 0;
        closed = last ? 0 : closed + 1;
    }
    return ranges;
}

// The last cap repeats, so equal caps at the end are one.
std::vector<Bytes> shortest_list(std::vector<CapRange> ranges) {
    while (ranges.size() > 1) {
        const CapRange shared = common(ranges[ranges.size() - 2], ranges.back());
        if (empty(shared)) {
            break;
        }
        ranges.pop_back();
        ranges.back() = shared;
    }
    return transformed(ranges, roundest_cap);
}

}  // namespace

std::vector<Bytes> cap_list_for(const GradientLine& line, const std::vector<Gradient>& gradients,
                                const BucketPlan& plan, Closing closing,
                                const std::function<bool(const std::vector<Bytes>&)>& gives_it) {
    const std::optional<Cuts> cuts = line.cuts_of(plan);
    if (!cuts || !closes_at_caps(closing)) {
        return {};
    }
    const std::uint32_t ways = line.ways_to_end();
    std::vector<Bytes> shortest;
    for (std::uint32_t open = 0; open < ways; ++open) {
        const auto last_of = [&](std::size_t accumulator) {
            return ways == 1                           ? LastBucket::either
                   : ((open >> accumulator) & 1U) != 0 ? LastBucket::when_all_have_joined
                                                       : LastBucket::with_its_last_gradient;
        };
        std::vector<Bytes> list =
            shortest_list(ranges_of(line, gradients, *cuts, closing, last_of));
        const bool shorter = shortest.empty() || list.size() < shortest.size();
        if (!list.empty() && shorter && gives_it(list)) {
            shortest = std::move(list);
        }
    }
    return shortest;
}

}  // namespace bucketwise
