// Text of a file as it can be shown to people.
#pragma once

#include <string>
#include <string_view>

namespace bucketwise {

// No control characters, and no longer than names are.
inline std::string plain_text(std::string_view text, std::size_t longest = 100) {
    std::string kept;
    for (const char c : text.substr(0, longest)) {
        kept += c >= ' ' && c <= '~' ? c : '?';
    }
    return kept;
}

}  // namespace bucketwise
