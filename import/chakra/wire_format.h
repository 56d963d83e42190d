// The wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding/), as far
// as messages with known fields need it: a field is a number, a type, and a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bucketwise {

struct WireField {
    std::uint32_t number = 0;
    bool has_bytes = false;   // a string, a message, or packed numbers; else a number
    std::uint64_t value = 0;  // of a number
    std::string_view bytes = {};
};

// The fields of a message, one after another, without a copy. All throw InputError for a value that
// is cut off.
class WireMessage {
  public:
    // `place`: file and message, for errors.
    WireMessage(std::string_view bytes, const std::string& place) : bytes_(bytes), place_(place) {}

    // Nothing at the end. Throws InputError for an unknown type, too.
    std::optional<WireField> next();
    // The next of packed numbers.
    std::optional<std::uint64_t> next_number();
    // The next of messages with their lengths before them.
    std::optional<std::string_view> next_message();

  private:
    std::uint64_t varint();
    std::uint64_t fixed(std::size_t size);
    std::string_view take(std::uint64_t size);

    std::string_view bytes_;
    const std::string& place_;
};

}  // namespace bucketwise
