#include "import/chakra/wire_format.h"

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {

std::string_view WireMessage::take(std::uint64_t size) {
    if (size > bytes_.size()) {
        throw InputError(place_, "", fmt::format("a field of {} bytes", size),
                         fmt::format("the end of its message after {}", bytes_.size()));
    }
    const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(size));
    bytes_.remove_prefix(taken.size());
    return taken;
}

std::uint64_t WireMessage::varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const auto byte = static_cast<std::uint8_t>(take(1).front());
        value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    throw InputError(place_, "", "a number of 64 bits", "a longer one");
}

std::uint64_t WireMessage::fixed(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(size);
    for (std::size_t i = size; i > 0; --i) {
        value = value << 8 | static_cast<std::uint8_t>(bytes[i - 1]);
    }
    return value;
}

std::optional<WireField> WireMessage::next() {
    if (bytes_.empty()) {
        return std::nullopt;
    }
    const std::uint64_t tag = varint();
    constexpr std::uint64_t most_fields = (std::uint64_t{1} << 29) - 1;
    if (tag >> 3 == 0 || tag >> 3 > most_fields) {
        throw InputError(place_, "", "a field of a message", fmt::format("the tag {}", tag));
    }
    WireField field{.number = static_cast<std::uint32_t>(tag >> 3)};
    const std::uint64_t type = tag & 7;
    field.has_bytes = type == 2;
    if (type == 2) {
        field.bytes = take(varint());
    } else if (type == 0) {
        field.value = varint();
    } else if (type == 1 || type == 5) {
        field.value = fixed(type == 1 ? 8 : 4);
    } else {
        throw InputError(place_, "", "a field of type 0, 1, 2 or 5",
                         fmt::format("type {} of field {}", type, field.number));
    }
    return field;
}

std::optional<std::uint64_t> WireMessage::next_number() {
    return bytes_.empty() ? std::nullopt : std::optional(varint());
}

std::optional<std::string_view> WireMessage::next_message() {
    return bytes_.empty() ? std::nullopt : std::optional(take(varint()));
}

}  // namespace bucketwise
