// Text of a file, made fit to show or to compare.
#pragma once

#include <string>
#include <string_view>

namespace bucketwise {

// Without control characters, and no longer than names are.
inline std::string plain_text(std::string_view text, std::size_t longest = 100) {
    std::string kept;
    for (const char c : text.substr(0, longest)) {
        kept += c >= ' ' && c <= '~' ? c : '?';
    }
    return kept;
}

constexpr char lower_letter(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Its letters alone, in lower case: "allreduce" of "ALL_REDUCE".
inline std::string letters_of(std::string_view text) {
    std::string letters;
    for (const char c : text) {
        if (lower_letter(c) >= 'a' && lower_letter(c) <= 'z') {
            letters += lower_letter(c);
        }
    }
    return letters;
}

}  // namespace bucketwise
