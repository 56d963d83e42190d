// Whole events of a trace at once, through simdjson: many times as fast as a parser that is given
// one byte after another, but for text that is all in memory.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <simdjson.h>

namespace bucketwise {

struct WindowEvents {
    simdjson::dom::array events;  // valid until the next are read
    std::size_t bytes = 0;        // of the text, from its begin
};

class EventWindow {
  public:
    // Bytes beyond a text that are read, whatever they are.
    static constexpr std::size_t padding_bytes = simdjson::SIMDJSON_PADDING;

    // For texts of up to `most_bytes`. Values nested more than `deepest` deep are not read.
    EventWindow(std::size_t most_bytes, std::size_t deepest);

    // What `text` begins with: a comma, an event, a comma, an event, ... as far as they are whole
    // and another comma and object follow. Nothing where there are none, or something is wrong with
    // them, or may be: who can say what has to look again. `text` is written to, and restored.
    std::optional<WindowEvents> read(std::span<char> text);

  private:
    std::optional<WindowEvents> read_until(std::span<char> text, std::size_t begin,
                                           std::size_t end);

    simdjson::dom::parser parser_;
};

}  // namespace bucketwise
