#include "sim/optimum/cap_list.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/plan/cap.h"

namespace bucketwise {
namespace {

// The gradients in the order in which they join buckets, which may run against the line.
class Joining {
  public:
    explicit Joining(const GradientLine& line) : line_(line) {}

    [[nodiscard]] std::size_t size() const { return line_.size(); }
    [[nodiscard]] Bytes bytes(std::size_t begin, std::size_t end) const {
        return line_.joins_backwards() ? line_.bytes(size() - end, size() - begin)
                                       : line_.bytes(begin, end);
    }
    // Cuts of the line as cuts of this order, and back.
    [[nodiscard]] Cuts turned(const Cuts& cuts) const {
        if (!line_.joins_backwards()) {
            return cuts;
        }
        Cuts result;
        for (std::size_t i = cuts.size() - 1; i-- > 0;) {
            result.push_back(size() - cuts[i]);
        }
        result.push_back(size());
        return result;
    }

  private:
    const GradientLine& line_;
};

// When the last bucket of an accumulator closes: that may change the order of buckets.
enum class LastBucket : std::uint8_t { with_its_last_gradient, when_all_have_joined, either };

// The caps with which a bucket closes that has so many bytes, so many without its last gradient,
// and so many with the next one, if one is to come.
CapRange caps_for(Bytes size, Bytes without_last, std::optional<Bytes> with_next, Closing closing,
                  LastBucket last) {
    if (closing == Closing::strict) {
        // One larger than the cap is alone, so a single gradient may have any cap below too.
        const Bytes lowest = without_last == Bytes{0} ? Bytes{1} : size;
        return {std::max(lowest, Bytes{1}),
                with_next ? std::optional(*with_next - Bytes{1}) : std::nullopt};
    }
    if (!with_next && last == LastBucket::when_all_have_joined) {
        return {size + Bytes{1}, std::nullopt};
    }
    const bool any_above = !with_next && last == LastBucket::either;
    return {without_last + Bytes{1}, any_above ? std::nullopt : std::optional(size)};
}

CapRange caps_for(const Joining& joining, std::size_t begin, std::size_t end, Closing closing) {
    const bool last = end == joining.size();
    return caps_for(joining.bytes(begin, end), joining.bytes(begin, end - 1),
                    last ? std::nullopt : std::optional(joining.bytes(begin, end + 1)), closing,
                    LastBucket::either);
}

bool empty(const CapRange& range) {
    return range.highest && *range.highest < range.lowest;
}

bool can_be_listed(const GradientLine& line, Closing closing) {
    return line.uniform() && (closing == Closing::overshoot || closing == Closing::strict);
}

std::size_t next_cut(const Joining& joining, std::size_t begin, Bytes cap, Closing closing) {
    const bool strict = closing == Closing::strict;
    std::size_t end = begin + 1;
    while (end < joining.size() &&
           (strict ? joining.bytes(begin, end + 1) <= cap : joining.bytes(begin, end) < cap)) {
        ++end;
    }
    return end;
}

Cuts joined(const Joining& joining, const std::vector<Bytes>& list, Closing closing) {
    Cuts cuts;
    for (std::size_t end = 0; end < joining.size();) {
        end = next_cut(joining, end, list[std::min(cuts.size(), list.size() - 1)], closing);
        cuts.push_back(end);
    }
    return cuts;
}

// What each cap of a list may be for the policy to close the buckets of accumulators so.
class ListRanges {
  public:
    ListRanges(const GradientLine& accumulators, const std::vector<Gradient>& gradients,
               Closing closing)
        : line_(accumulators), gradients_(gradients), closing_(closing) {}

    [[nodiscard]] bool sparse(std::size_t place) const {
        return gradients_[static_cast<std::size_t>(line_.gradient(place))].sparse;
    }

    // `last_of` tells of the k-th accumulator of a dtype. Empty where no list does.
    [[nodiscard]] std::vector<CapRange> of(
        const Cuts& cuts, const std::function<LastBucket(std::size_t)>& last_of) const {
        std::vector<CapRange> ranges(1);
        std::size_t begin = 0;
        std::size_t accumulator = 0;
        std::size_t closed = 0;  // buckets of it
        for (const std::size_t end : cuts) {
            const bool last = end == line_.longest_end(begin);
            if (!sparse(begin)) {
                ranges.resize(std::max(ranges.size(), closed + 1));
                CapRange& of_closed = ranges[closed];
                of_closed = common(of_closed, range(begin, end, last_of(accumulator)));
                if (empty(of_closed)) {
                    return {};
                }
                accumulator += last ? 1 : 0;
                closed = last ? 0 : closed + 1;
            }
            begin = end;
        }
        return ranges;
    }

  private:
    [[nodiscard]] CapRange range(std::size_t begin, std::size_t end, LastBucket last) const {
        const bool is_last = end == line_.longest_end(begin);
        return caps_for(line_.bytes(begin, end), line_.bytes(begin, end - 1),
                        is_last ? std::nullopt : std::optional(line_.bytes(begin, end + 1)),
                        closing_, last);
    }

    const GradientLine& line_;
    const std::vector<Gradient>& gradients_;
    Closing closing_;
};

// As the last one repeats, those at the end that can be the same are one.
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

std::optional<std::vector<Bytes>> cap_list_for(const GradientLine& line, const Cuts& cuts,
                                               Closing closing) {
    if (!can_be_listed(line, closing)) {
        return std::nullopt;
    }
    const Joining joining(line);
    std::vector<CapRange> ranges;
    std::size_t begin = 0;
    for (const std::size_t end : joining.turned(cuts)) {
        ranges.push_back(caps_for(joining, begin, end, closing));
        if (empty(ranges.back())) {
            return std::nullopt;
        }
        begin = end;
    }
    return shortest_list(std::move(ranges));
}

std::vector<Bytes> cap_list_for(const GradientLine& line, const std::vector<Gradient>& gradients,
                                const BucketPlan& plan, const PlanPolicy& policy,
                                const std::function<bool(const std::vector<Bytes>&)>& gives_it) {
    const std::optional<Cuts> cuts = line.cuts_of(plan);
    if (!cuts || (policy.closing != Closing::overshoot && policy.closing != Closing::strict)) {
        return {};
    }
    const ListRanges ranges(line, gradients, policy.closing);
    const std::uint32_t ways = line.ways_to_end();
    std::vector<Bytes> shortest;
    for (std::uint32_t open = 0; open < ways; ++open) {
        const auto last_of = [&](std::size_t accumulator) {
            return ways == 1                           ? LastBucket::either
                   : ((open >> accumulator) & 1U) != 0 ? LastBucket::when_all_have_joined
                                                       : LastBucket::with_its_last_gradient;
        };
        std::vector<Bytes> list = shortest_list(ranges.of(*cuts, last_of));
        const bool shorter = shortest.empty() || list.size() < shortest.size();
        if (!list.empty() && shorter && gives_it(list)) {
            shortest = std::move(list);
        }
    }
    return shortest;
}

Cuts cuts_with(const GradientLine& line, const std::vector<Bytes>& list, Closing closing) {
    invariant(can_be_listed(line, closing) && !list.empty(), "a list of caps gives cuts");
    const Joining joining(line);
    return joining.turned(joined(joining, list, closing));
}

void visit_last_caps(const GradientLine& line, std::vector<Bytes> first_caps, Closing closing,
                     const std::function<bool(const Cuts&)>& visit) {
    invariant(can_be_listed(line, closing), "a list of caps gives cuts");
    const Joining joining(line);
    const std::size_t given = first_caps.size();
    std::vector<Bytes>& list = first_caps;
    list.emplace_back();
    walk_plans(Bytes{1}, 1.0, [&](Bytes last) {
        list.back() = last;
        const Cuts cuts = joined(joining, list, closing);
        CapRange same;
        if (!visit(joining.turned(cuts))) {
            return same;
        }
        for (std::size_t i = given; i < cuts.size(); ++i) {
            const std::size_t begin = i == 0 ? 0 : cuts[i - 1];
            same = common(same, caps_for(joining, begin, cuts[i], closing));
        }
        return same;
    });
}

}  // namespace bucketwise
