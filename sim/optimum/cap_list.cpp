#include "sim/optimum/cap_list.h"

#include <algorithm>
#include <limits>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/plan/cap.h"

namespace bucketwise {
namespace {

constexpr Bytes unbounded{std::numeric_limits<std::int64_t>::max()};

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

// The caps with which a bucket from `begin` ends at `end`, others being as they are.
CapRange caps_for(const Joining& joining, std::size_t begin, std::size_t end, Closing closing) {
    const bool last = end == joining.size();
    const Bytes size = joining.bytes(begin, end);
    if (closing == Closing::strict) {
        // One larger than the cap is alone, so a single gradient may have any cap below too.
        const Bytes lowest = end == begin + 1 ? Bytes{1} : size;
        return {std::max(lowest, Bytes{1}),
                last ? std::nullopt : std::optional(joining.bytes(begin, end + 1) - Bytes{1})};
    }
    return {joining.bytes(begin, end - 1) + Bytes{1}, last ? std::nullopt : std::optional(size)};
}

// Narrowed so that both hold.
CapRange both(const CapRange& a, const CapRange& b) {
    const Bytes highest = std::min(a.highest.value_or(unbounded), b.highest.value_or(unbounded));
    return {std::max(a.lowest, b.lowest),
            highest == unbounded ? std::nullopt : std::optional(highest)};
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
    while (ranges.size() > 1) {
        const CapRange shared = both(ranges[ranges.size() - 2], ranges.back());
        if (empty(shared)) {
            break;
        }
        ranges.pop_back();
        ranges.back() = shared;
    }
    return transformed(ranges, roundest_cap);
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
            same = both(same, caps_for(joining, begin, cuts[i], closing));
        }
        return same;
    });
}

}  // namespace bucketwise
