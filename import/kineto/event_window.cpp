#include "import/kineto/event_window.h"

#include <string_view>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

constexpr std::string_view blanks = " \t\r\n";
constexpr std::size_t nowhere = std::string_view::npos;

// The last comma between what looks like the end of an object and the begin of another. It may lie
// within an event, or a name.
std::size_t likely_end(std::string_view text) {
    for (std::size_t next = text.rfind('{'); next != nowhere && next > 0;
         next = text.rfind('{', next - 1)) {
        const std::size_t comma = text.find_last_not_of(blanks, next - 1);
        if (comma == nowhere || comma == 0 || text[comma] != ',') {
            continue;
        }
        const std::size_t last = text.find_last_not_of(blanks, comma - 1);
        if (last != nowhere && text[last] == '}') {
            return comma;
        }
    }
    return nowhere;
}

// The last comma after `begin` that is in no value, and that an object follows.
std::size_t certain_end(std::string_view text, std::size_t begin) {
    std::size_t found = nowhere;
    std::size_t depth = 0;
    bool in_string = false;
    for (std::size_t at = begin + 1; at < text.size(); ++at) {
        const char c = text[at];
        if (in_string) {
            in_string = c != '"';
            at += c == '\\' ? 1 : 0;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            ++depth;
        } else if (c == '}' || c == ']') {
            if (depth == 0) {
                break;
            }
            --depth;
        } else if (c == ',' && depth == 0) {
            const std::size_t next = text.find_first_not_of(blanks, at + 1);
            found = next != nowhere && text[next] == '{' ? at : found;
        }
    }
    return found;
}

}  // namespace

EventWindow::EventWindow(std::size_t most_bytes, std::size_t deepest) {
    const simdjson::error_code error = parser_.allocate(most_bytes, deepest);
    if (error == simdjson::MEMALLOC) {
        throw std::bad_alloc();
    }
    invariant(error == simdjson::SUCCESS, "simdjson can read texts of this size");
}

std::optional<WindowEvents> EventWindow::read(std::span<char> text) {
    const std::string_view characters(text.data(), text.size());
    const std::size_t begin = characters.find_first_not_of(blanks);
    if (begin == nowhere || characters[begin] != ',') {
        return std::nullopt;
    }
    // Where the guess is wrong, what is before it is no list: a prefix of JSON leaves no choice
    // whether a string or a value is open.
    const std::size_t likely = likely_end(characters);
    if (likely == nowhere || likely <= begin) {
        return std::nullopt;
    }
    if (std::optional<WindowEvents> events = read_until(text, begin, likely)) {
        return events;
    }
    const std::size_t certain = certain_end(characters, begin);
    return certain == nowhere || certain == likely ? std::nullopt
                                                   : read_until(text, begin, certain);
}

std::optional<WindowEvents> EventWindow::read_until(std::span<char> text, std::size_t begin,
                                                    std::size_t end) {
    text[begin] = '[';
    text[end] = ']';
    simdjson::dom::array events;
    const simdjson::error_code error =
        parser_.parse(text.data() + begin, end + 1 - begin, false).get(events);
    text[begin] = text[end] = ',';
    return error == simdjson::SUCCESS ? std::optional(WindowEvents{events, end}) : std::nullopt;
}

}  // namespace bucketwise
