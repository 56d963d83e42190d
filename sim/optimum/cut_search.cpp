#include "sim/optimum/cut_search.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace bucketwise {

bool CutSearch::allows(const Cuts& cuts) const {
    std::size_t begin = 0;
    return std::ranges::all_of(
        cuts, [&](std::size_t end) { return end <= longest_end(std::exchange(begin, end)); });
}

void CutSearch::try_all() const {
    for (std::uint32_t inner = 0; inner < (1U << (size - 1)); ++inner) {
        Cuts cuts;
        for (std::size_t end = 1; end < size; ++end) {
            if (((inner >> (end - 1)) & 1U) != 0) {
                cuts.push_back(end);
            }
        }
        cuts.push_back(size);
        if (allows(cuts)) {
            step_of(cuts);
        }
    }
}

void CutSearch::climb(Cuts cuts) const {
    std::optional<Duration> best = step_of(cuts);
    const auto takes = [&](Cuts changed) {
        const std::optional<Duration> step = allows(changed) ? step_of(changed) : std::nullopt;
        const bool better =
            step && (!best || std::pair(*step, changed.size()) < std::pair(*best, cuts.size()));
        if (better) {
            best = step;
            cuts = std::move(changed);
        }
        return better;
    };
    const auto without = [](Cuts changed, std::size_t i) {
        changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
        return changed;
    };
    const auto with = [](Cuts changed, std::size_t place) {
        changed.insert(std::ranges::lower_bound(changed, place), place);
        return changed;
    };
    bool better = true;
    const auto change = [&](std::size_t i) {
        const std::size_t low = i == 0 ? 0 : cuts[i - 1];
        if (i + 1 < cuts.size()) {
            better = takes(without(cuts, i)) || better;
        }
        if (i + 1 < cuts.size()) {
            const std::size_t high = cuts[i + 1];
            for (std::size_t by = 1; by < high - low; by *= 2) {
                if (cuts[i] + by < high) {
                    better = takes(with(without(cuts, i), cuts[i] + by)) || better;
                }
                if (cuts[i] > low + by) {
                    better = takes(with(without(cuts, i), cuts[i] - by)) || better;
                }
            }
        }
        const std::size_t high = cuts[i];
        for (std::size_t by = (high - low) / 2; by > 0; by /= 2) {
            if (takes(with(cuts, low + by)) ||
                (high - by != low + by && takes(with(cuts, high - by)))) {
                better = true;
                return;
            }
        }
    };
    while (std::exchange(better, false)) {
        for (std::size_t i = 0; i < cuts.size(); ++i) {
            change(i);
        }
    }
}

Cuts greedy_merge(const GradientLine& line, const std::function<Duration(std::size_t)>& ready,
                  const std::function<Duration(std::size_t, std::size_t)>& cost) {
    Cuts cuts;
    Duration network_free{0};
    std::size_t begin = 0;
    for (std::size_t end = 1; end < line.size(); ++end) {
        const Duration starts = std::max(network_free, ready(end));
        if (end + 1 <= line.longest_end(begin)) {
            const Duration saved = cost(begin, end) + cost(end, end + 1) - cost(begin, end + 1);
            if (ready(end + 1) < starts + saved) {
                continue;
            }
        }
        network_free = starts + cost(begin, end);
        cuts.push_back(end);
        begin = end;
    }
    cuts.push_back(line.size());
    return cuts;
}

}  // namespace bucketwise
