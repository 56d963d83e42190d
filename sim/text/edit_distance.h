// How near two names are: what a user may have meant by a name that is none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bucketwise {

// Levenshtein's: the fewest characters that must be inserted, removed or replaced.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
        }
    }
    return row.back();
}

// The one of `known` that `text` was probably meant to be, whatever its case: one that it begins,
// or the one with the fewest characters to change, if these are few. Empty: none is near.
inline std::string_view nearest_name(std::string_view text,
                                     const std::vector<std::string_view>& known) {
    constexpr std::size_t longest = 64;   // a longer one is no slip of the hand
    constexpr std::size_t beginning = 3;  // characters that tell which name they begin
    const auto lower = [](std::string_view name) {
        std::string lowered(name);
        for (char& c : lowered) {
            c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        }
        return lowered;
    };
    // Numbers and versions are no slips of one another.
    const bool has_letter = std::ranges::any_of(
        text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
    if (!has_letter || text.size() > longest) {
        return {};
    }
    const std::string typed = lower(text);
    std::string_view nearest;
    // With as many changes as characters nothing of it would be left.
    std::size_t fewest = std::min(std::max<std::size_t>(2, typed.size() / 3) + 1,
                                  std::max<std::size_t>(typed.size(), 1));
    for (const std::string_view name : known) {
        const std::string candidate = lower(name);
        const bool begins = typed.size() >= beginning && candidate.starts_with(typed);
        const std::size_t distance = begins ? 1 : edit_distance(typed, candidate);
        if (distance < fewest) {
            fewest = distance;
            nearest = name;
        }
    }
    return nearest;
}

}  // namespace bucketwise
