#include "sim/text/marked_up.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

constexpr std::size_t longest_line = 2000;

// Length of a mark that makes a line a list, "- ", "+ " or "1. ", or a rule, "---" (CommonMark,
// sections 4.1 and 5.2). 0: no mark.
std::size_t list_mark_length(std::string_view text) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view marks = digits == 0 ? "-+" : ".)";
    const std::string_view rest = text.substr(digits);
    const bool is_mark = !rest.empty() && marks.find(rest.front()) != std::string_view::npos &&
                         (rest.size() == 1 || rest[1] == ' ' || rest.starts_with("--"));
    return is_mark ? digits + 1 : 0;
}

std::string_view without_blanks(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    return text.substr(0, text.find_last_not_of(blanks) + 1);
}

// XML has no place for U+FFFE and U+FFFF, not even as an escape. These are their bytes.
bool is_no_character(std::string_view text) {
    return text.starts_with("\xef\xbf\xbe") || text.starts_with("\xef\xbf\xbf");
}

}  // namespace

// On one line, and nothing in it means anything to Markdown, HTML, a table or GitHub's formulas.
// Underscores within words mean nothing anyway. Blanks at the beginning would make it code.
std::string markdown_escaped(std::string_view foreign) {
    constexpr std::string_view special = R"(\`*[]<>|$&~#)";
    const std::string line = cut_text(foreign, longest_line);
    const std::string_view text = without_blanks(line);
    const std::size_t list_mark = list_mark_length(text);
    const auto is_in_word = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    std::string escaped_text;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool within_word =
            i > 0 && i + 1 < text.size() && is_in_word(text[i - 1]) && is_in_word(text[i + 1]);
        if (special.find(c) != std::string_view::npos || (c == '_' && !within_word) ||
            i + 1 == list_mark) {
            escaped_text += '\\';
        }
        escaped_text += c;
    }
    return escaped_text;
}

std::string markup_escaped(std::string_view foreign) {
    const std::string text = shown_text(foreign);
    std::string escaped;
    for (std::size_t i = 0; i < text.size(); ++i) {
        switch (text[i]) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            default:
                if (is_no_character(std::string_view(text).substr(i))) {
                    escaped += '?';
                    i += 2;
                } else {
                    escaped += text[i];
                }
        }
    }
    return escaped;
}

}  // namespace bucketwise
