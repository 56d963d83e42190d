// What an importer has to say about what it read: so that nobody takes an assumption for a fact.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

    void found(std::string item, std::string text) {
        all.push_back({FindingKind::found, std::move(item), std::move(text)});
    }
    void assumed(std::string item, std::string text) {
        all.push_back({FindingKind::assumed, std::move(item), std::move(text)});
    }
    void missing(std::string item, std::string text) {
        all.push_back({FindingKind::missing, std::move(item), std::move(text)});
    }
};

// A paragraph of each kind.
std::string text_of(const Findings& findings);

}  // namespace bucketwise
