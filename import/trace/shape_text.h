// Shapes of an operation's inputs, written as text.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace bucketwise {

struct ShapeElements {
    std::int64_t first = -1;  // of the first input; -1: not said
    std::int64_t all = -1;    // of all inputs that are tensors with dimensions
};

// Reads a text such as "[[64, 3, 7, 7], [], [64]]" as far as it goes. A tensor without dimensions
// has one element; an input that is no tensor looks the same.
inline ShapeElements elements_of_shapes(std::string_view text) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    ShapeElements elements;
    bool first = true;
    for (std::size_t at = text.find('[') + 1; at < text.size() && text[at] != ']'; ++at) {
        if (text[at] != '[') {
            continue;  // between two shapes
        }
        std::int64_t product = 1;
        bool any = false;
        for (++at; at < text.size() && text[at] != ']';) {
            std::int64_t size = 0;
            const auto [end, error] =
                std::from_chars(text.data() + at, text.data() + text.size(), size);
            if (error != std::errc{}) {
                ++at;
                continue;
            }
            if (size < 0 || (size > 0 && product > most / size)) {
                return elements;
            }
            product *= size;
            any = true;
            at = static_cast<std::size_t>(end - text.data());
        }
        elements.first = first ? product : elements.first;
        if (any) {
            elements.all = std::min(std::max<std::int64_t>(elements.all, 0) + product, most);
        }
        first = false;
    }
    return elements;
}

}  // namespace bucketwise
