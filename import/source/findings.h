// What an importer has to say about what it read: so that nobody takes an assumption for a fact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace bucketwise {

enum class FindingKind : std::uint8_t { found, assumed, missing };

struct Finding {
    FindingKind kind = FindingKind::found;
    std::string item;  // "gradients", "link", ...
    std::string text;  // one sentence or a list, without an end
    bool operator==(const Finding&) const = default;
};

// In the order in which they were made.
struct Findings {
    std::vector<Finding> all = {};
    bool operator==(const Findings&) const = default;

    // The text as fmt::format() writes it.
    template <typename... Values>
    void found(const char* item, fmt::format_string<Values...> text, Values&&... values) {
        all.push_back(
            {FindingKind::found, item, fmt::format(text, std::forward<Values>(values)...)});
    }
    template <typename... Values>
    void assumed(const char* item, fmt::format_string<Values...> text, Values&&... values) {
        all.push_back(
            {FindingKind::assumed, item, fmt::format(text, std::forward<Values>(values)...)});
    }
    template <typename... Values>
    void missing(const char* item, fmt::format_string<Values...> text, Values&&... values) {
        all.push_back(
            {FindingKind::missing, item, fmt::format(text, std::forward<Values>(values)...)});
    }
};

// "3 x broadcast; 1 x all-gather and 2 more kinds": how often each was there, the first eight.
std::string text_of_kinds(const std::map<std::string, std::size_t>& counts);

// A paragraph of each kind.
std::string text_of(const Findings& findings);

}  // namespace bucketwise
