// Findings of an importer about its input, which keep assumptions apart from facts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/base/caveat.h"

namespace bucketwise {

enum class FindingKind : std::uint8_t { found, assumed, missing };

// The part that a finding weakens so much that predictions with it carry a caveat.
enum class Weakens : std::uint8_t { nothing, scenario, link };

struct Finding {
    FindingKind kind = FindingKind::found;
    std::string item;  // "gradients", "link", ...
    std::string text;  // one sentence or a list, without an end
    Weakens weakens = Weakens::nothing;
    bool operator==(const Finding&) const = default;
};

// The first that was made comes first.
struct Findings {
    std::vector<Finding> all = {};
    bool operator==(const Findings&) const = default;

    // The text as fmt::format() writes it. Returned is the new one, to say what it weakens.
    template <typename... Values>
    Finding& found(const char* item, fmt::format_string<Values...> text, Values&&... values) {
        return add(FindingKind::found, item, fmt::format(text, std::forward<Values>(values)...));
    }
    template <typename... Values>
    Finding& assumed(const char* item, fmt::format_string<Values...> text, Values&&... values) {
        return add(FindingKind::assumed, item, fmt::format(text, std::forward<Values>(values)...));
    }
    template <typename... Values>
    Finding& missing(const char* item, fmt::format_string<Values...> text, Values&&... values) {
        return add(FindingKind::missing, item, fmt::format(text, std::forward<Values>(values)...));
    }

  private:
    Finding& add(FindingKind kind, const char* item, std::string text) {
        return all.emplace_back(Finding{.kind = kind, .item = item, .text = std::move(text)});
    }
};

// The findings that weaken this, each with its item first, except the link's own.
std::vector<Caveat> caveats_of(const Findings& findings, Weakens what);

// "3 x broadcast; 1 x all-gather and 2 more kinds": how often each was there, the first eight.
std::string text_of_kinds(const std::map<std::string, std::size_t>& counts);

// A paragraph of each kind.
std::string text_of(const Findings& findings);

}  // namespace bucketwise
