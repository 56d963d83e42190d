// What an importer has to say about what it read: so that nobody takes an assumption for a fact.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bucketwise {

enum class FindingKind : std::uint8_t { found, assumed, missing };

struct Finding {
    FindingKind kind = FindingKind::found;
    std::string item;  // "gradients", "link", ...
    std::string text;  // one sentence or a list, without an end
    bool operator==(const Finding&) const = default;
};

}  // namespace bucketwise
