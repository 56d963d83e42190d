// The wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding/), as far
// as it takes to read messages whose fields are known: a field is a number, a type, and a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bucketwise {

// One field of a message.
struct WireField {
    std::uint32_t number = 0;
    bool has_bytes = false;   // a string, a message, or packed numbers; else a number
    std::uint64_t value = 0;  // of a number
    std::string_view bytes = {};
};

// The fields of a message, one after another, without a copy.
class WireMessage {
  public:
    // `place`: file and message, for errors.
    WireMessage(std::string_view bytes, const std::string& place) : bytes_(bytes), place_(place) {}

    // Nothing at the end. Throws InputError where a field is cut off or of a type that is none.
    std::optional<WireField> next();
    // The next number of what is packed.
    std::optional<std::uint64_t> next_number();

  private:
    std::uint64_t varint();
    std::uint64_t fixed(std::size_t size);
    std::string_view take(std::uint64_t size);

    std::string_view bytes_;
    const std::string& place_;
};

}  // namespace bucketwise
