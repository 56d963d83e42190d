#include "import/nsys/range_text.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace bucketwise {
namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 40;

// Of a text such as "[[64, 3, 7, 7], [], [64]]". A tensor without dimensions has one element; what
// is no tensor looks alike.
void read_sizes(std::string_view text, RangeText& range) {
    std::size_t at = text.find('[') + 1;
    bool first = true;
    while (at < text.size() && text[at] != ']') {
        if (text[at] != '[') {
            ++at;  // between two shapes
            continue;
        }
        ++at;
        std::int64_t product = 1;
        bool any = false;
        while (at < text.size() && text[at] != ']') {
            std::int64_t size = 0;
            const auto [end, error] =
                std::from_chars(text.data() + at, text.data() + text.size(), size);
            if (error != std::errc{}) {
                ++at;
                continue;
            }
            if (size < 0 || (size > 0 && product > most_elements / size)) {
                return;
            }
            product *= size;
            any = true;
            at = static_cast<std::size_t>(end - text.data());
        }
        ++at;
        if (first) {
            range.elements = product;
        }
        if (any) {
            range.all_elements =
                std::min(std::max<std::int64_t>(range.all_elements, 0) + product, most_elements);
        }
        first = false;
    }
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

char lower_letter(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

RangeText range_text(std::string_view text) {
    constexpr std::size_t longest_name = 1'000;
    RangeText range;
    std::size_t end = text.size();
    for (const std::string_view appended : {", seq = ", ", op_id = "}) {
        if (const std::size_t at = text.find(appended); at != std::string_view::npos) {
            end = std::min(end, at);
            range.of_operation = true;
        }
    }
    constexpr std::string_view sizes = ", sizes = [";
    if (const std::size_t at = text.find(sizes); at != std::string_view::npos) {
        end = std::min(end, at);
        read_sizes(text.substr(at + sizes.size() - 1), range);
    }
    range.name = text.substr(0, std::min(end, longest_name));
    return range;
}

std::string repeated_name(std::string_view name) {
    std::string plain;
    for (const char c : name) {
        const bool numbers = is_digit(c) || c == '#' || c == ':' || c == '=' || c == '(' ||
                             c == ')' || c == '[' || c == ']' || c == '/';
        const bool parts = c == ' ' || c == '_' || c == '-';
        if (parts || numbers) {
            if (!plain.empty() && plain.back() != ' ') {
                plain += ' ';
            }
        } else {
            plain += lower_letter(c);
        }
    }
    while (!plain.empty() && plain.back() == ' ') {
        plain.pop_back();
    }
    return plain;
}

}  // namespace bucketwise
