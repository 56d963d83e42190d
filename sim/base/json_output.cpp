#include "sim/base/json_output.h"

#include <algorithm>

namespace bucketwise {

std::string cut_text(std::string text, std::size_t longest) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
    constexpr unsigned char continuation_mask = 0xC0;
    constexpr unsigned char continuation = 0x80;
    if (text.size() <= longest) {
        return text;
    }
    const std::string dots = "...";
    std::size_t end = longest - dots.size();
    while (end > 0 && (static_cast<unsigned char>(text[end]) & continuation_mask) == continuation) {
        --end;
    }
    return text.substr(0, end) + dots;
}

}  // namespace bucketwise
