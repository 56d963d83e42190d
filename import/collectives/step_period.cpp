#include "import/collectives/step_period.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// From `begin` up to `end` each size is that of `period` places before.
struct Stretch {
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] std::size_t length() const { return end - begin; }
};

using Sizes = std::vector<std::int64_t>;

// At least two periods long each, apart.
std::vector<Stretch> stretches_of(const Sizes& sizes, std::size_t period) {
    std::vector<Stretch> found;
    std::size_t begin = 0;
    for (std::size_t i = period; i <= sizes.size(); ++i) {
        if (i < sizes.size() && sizes[i] == sizes[i - period]) {
            continue;
        }
        const std::size_t first = found.empty() ? begin : std::max(begin, found.back().end);
        if (i >= first + 2 * period) {
            found.push_back({first, i});
        }
        begin = i + 1 - period;
    }
    return found;
}

// The least rotation of one period of a stretch (by comparing two rotations and skipping the larger
// as far as both were alike).
Sizes least_turn(const Sizes& sizes, const Stretch& stretch, std::size_t period) {
    const auto at = [&](std::size_t i) { return sizes[stretch.begin + i % period]; };
    std::size_t one = 0;
    std::size_t other = 1;
    std::size_t alike = 0;
    while (one < period && other < period && alike < period) {
        const std::int64_t a = at(one + alike);
        const std::int64_t b = at(other + alike);
        if (a == b) {
            ++alike;
            continue;
        }
        (a > b ? one : other) += alike + 1;
        other += one == other ? 1 : 0;
        alike = 0;
    }
    const std::size_t first = std::min(one, other);
    Sizes turned(period);
    for (std::size_t i = 0; i < period; ++i) {
        turned[i] = at(first + i);
    }
    return turned;
}

std::size_t covered(const std::vector<Stretch>& stretches) {
    return std::transform_reduce(stretches.begin(), stretches.end(), std::size_t{0}, std::plus{},
                                 [](const Stretch& stretch) { return stretch.length(); });
}

struct Repetition {
    std::size_t period = 0;
    std::vector<Stretch> stretches = {};
};

// The shortest period of those that cover most.
Repetition find_repetition(const Sizes& sizes) {
    Repetition best;
    std::size_t most = 0;
    for (std::size_t period = 1; period <= std::min(longest_step, sizes.size() / 2); ++period) {
        std::vector<Stretch> stretches = stretches_of(sizes, period);
        if (covered(stretches) <= most) {
            continue;
        }
        const Stretch longest = *std::ranges::max_element(stretches, {}, &Stretch::length);
        const Sizes pattern = least_turn(sizes, longest, period);
        std::erase_if(stretches, [&](const Stretch& stretch) {
            return least_turn(sizes, stretch, period) != pattern;
        });
        if (covered(stretches) > most) {
            most = covered(stretches);
            best = {period, std::move(stretches)};
        }
    }
    constexpr double least_share = 0.9;
    if (best.period > 0 &&
        static_cast<double>(most) <
            least_share * static_cast<double>(sizes.size() - best.stretches.front().begin)) {
        return {};
    }
    return best;
}

// Pauses before each all-reduce of a stretch but its first, by their place in a step of `length`.
std::vector<std::vector<double>> pauses_by_place(const std::vector<Duration>& issued,
                                                 const Stretch& stretch, std::size_t length) {
    std::vector<std::vector<double>> pauses(length);
    for (std::size_t i = stretch.begin + 1; i < stretch.end; ++i) {
        pauses[(i - stretch.begin) % length].push_back(to_us(issued[i] - issued[i - 1]));
    }
    return pauses;
}

// The mean distance of pauses from the median at their place; each place takes a degree of freedom.
double unexplained(const std::vector<Duration>& issued, const Stretch& stretch,
                   std::size_t length) {
    double sum = 0;
    for (const std::vector<double>& pauses : pauses_by_place(issued, stretch, length)) {
        const double middle = pauses.empty() ? 0 : median(pauses);
        for (const double pause : pauses) {
            sum += std::abs(pause - middle);
        }
    }
    return sum / static_cast<double>(stretch.length() - 1 - length);
}

// The median pause at each place of a step.
std::vector<double> typical_pauses(const std::vector<Duration>& issued, const Stretch& stretch,
                                   std::size_t length) {
    std::vector<double> typical;
    for (const std::vector<double>& pauses : pauses_by_place(issued, stretch, length)) {
        typical.push_back(pauses.empty() ? 0 : median(pauses));
    }
    return typical;
}

// Whether the longest pause is clearly longer than at the same place of the step's other periods:
// steps that alternate between long and short repeat in twos, too.
bool has_one_long_pause(const std::vector<double>& typical, std::size_t period) {
    constexpr double clearly = 1.5;
    const auto longest = std::ranges::max_element(typical);
    const auto place = static_cast<std::size_t>(longest - typical.begin());
    for (std::size_t i = period; i < typical.size(); i += period) {
        if (clearly * typical[(place + i) % typical.size()] > *longest) {
            return false;
        }
    }
    return true;
}

// The number of periods in a step: the fewest that explain pauses about as well as any number; one
// where none does.
std::size_t periods_by_pauses(const std::vector<Duration>& issued, const Stretch& stretch,
                              std::size_t period) {
    constexpr double as_well = 1.25;
    constexpr std::size_t most_periods = 200;
    // Fewer than three pauses at a place may agree by chance.
    const std::size_t most = std::min(most_periods, (stretch.length() - 1) / (3 * period));
    std::vector<double> left;
    for (std::size_t periods = 1; periods <= most; ++periods) {
        left.push_back(unexplained(issued, stretch, periods * period));
    }
    const double least = left.empty() ? 0 : std::ranges::min(left);
    for (std::size_t periods = 1; periods <= left.size(); ++periods) {
        if (left[periods - 1] <= as_well * least &&
            has_one_long_pause(typical_pauses(issued, stretch, periods * period), period)) {
            return periods;
        }
    }
    return 1;
}

// The place of the longest pause.
std::size_t place_after_pause(const std::vector<Duration>& issued, const Stretch& stretch,
                              std::size_t length) {
    const std::vector<double> typical = typical_pauses(issued, stretch, length);
    return static_cast<std::size_t>(std::ranges::max_element(typical) - typical.begin());
}

// The only place before which the group did something else, or by far the most frequent one.
std::optional<std::size_t> place_after_others(const std::vector<bool>& after_others,
                                              const Stretch& stretch, std::size_t length) {
    std::vector<std::size_t> times(length);
    for (std::size_t i = stretch.begin; i < std::min(stretch.end, after_others.size()); ++i) {
        times[(i - stretch.begin) % length] += after_others[i] ? 1U : 0U;
    }
    const auto most = std::ranges::max_element(times);
    const std::size_t place = static_cast<std::size_t>(most - times.begin());
    const std::size_t all = std::reduce(times.begin(), times.end());
    return *most > 0 && 4 * *most > 3 * all ? std::optional(place) : std::nullopt;
}

template <typename List>
List last_of(const List& list) {
    const std::size_t kept = std::min(list.size(), most_looked_at);
    return List(list.end() - static_cast<std::ptrdiff_t>(kept), list.end());
}

std::size_t periods_of_step(const IssuedAllReduces& looked_at, const Stretch& longest,
                            std::size_t period, std::optional<std::int64_t> sum,
                            RepeatedSteps& result) {
    const auto begin = looked_at.sizes.begin() + static_cast<std::ptrdiff_t>(longest.begin);
    const std::int64_t of_period = std::reduce(begin, begin + static_cast<std::ptrdiff_t>(period));
    const std::int64_t before = std::reduce(looked_at.sizes.begin(), begin);
    const auto whole = [&](std::int64_t all) { return of_period > 0 && all % of_period == 0; };
    std::size_t periods = 1;
    if (sum && whole(*sum)) {
        periods = static_cast<std::size_t>(*sum / of_period);
        result.length_by = periods > 1 ? ToldBy::sum : ToldBy::order;
    } else if (before > of_period && whole(before)) {
        // The first iteration has the same gradients in other buckets.
        periods = static_cast<std::size_t>(before / of_period);
        result.length_by = ToldBy::others;
    } else if (!looked_at.issued.empty()) {
        periods = periods_by_pauses(looked_at.issued, longest, period);
        result.length_by = periods > 1 ? ToldBy::pauses : ToldBy::order;
    }
    return periods;
}

}  // namespace

RepeatedSteps find_steps(const IssuedAllReduces& all_reduces, std::optional<std::int64_t> sum) {
    const IssuedAllReduces looked_at{last_of(all_reduces.sizes), last_of(all_reduces.issued),
                                     last_of(all_reduces.after_others)};
    const std::size_t skipped = all_reduces.sizes.size() - looked_at.sizes.size();
    const Repetition repetition = find_repetition(looked_at.sizes);
    if (repetition.period == 0) {
        return {};
    }
    RepeatedSteps result;
    const Stretch longest = *std::ranges::max_element(repetition.stretches, {}, &Stretch::length);
    const std::size_t periods = periods_of_step(looked_at, longest, repetition.period, sum, result);
    if (periods > longest.length() / repetition.period) {
        return {};
    }
    result.length = periods * repetition.period;
    for (const Stretch& stretch : repetition.stretches) {
        // Nothing tells where a single step begins.
        if (stretch.length() <= result.length && !looked_at.issued.empty()) {
            continue;
        }
        std::size_t first = 0;
        if (const auto after = place_after_others(looked_at.after_others, stretch, result.length)) {
            first = *after;
            result.begin_by = ToldBy::others;
        } else if (!looked_at.issued.empty()) {
            first = place_after_pause(looked_at.issued, stretch, result.length);
            result.begin_by = ToldBy::pauses;
        }
        for (std::size_t at = stretch.begin + first; at + result.length <= stretch.end;
             at += result.length) {
            result.begins.push_back(skipped + at);
        }
    }
    return result.begins.empty() ? RepeatedSteps{} : result;
}

}  // namespace bucketwise
