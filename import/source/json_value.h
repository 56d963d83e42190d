// Values of a parsed JSON text, read without trust in their types.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <simdjson.h>

namespace bucketwise {

// A value, or a member that is missing.
class JsonValue : public simdjson::simdjson_result<simdjson::dom::element> {
  public:
    using Result = simdjson::simdjson_result<simdjson::dom::element>;
    // Converts, as each value is one. NOLINTNEXTLINE(google-explicit-constructor)
    JsonValue(simdjson::dom::element value) : Result(simdjson::dom::element(value)) {}
    // NOLINTNEXTLINE(google-explicit-constructor)
    JsonValue(Result value) : Result(std::move(value)) {}
};

// The member of an object by the first of its names that is there.
inline JsonValue member(const JsonValue& object, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
        if (JsonValue found = object[name]; found.error() == simdjson::SUCCESS) {
            return found;
        }
    }
    return JsonValue::Result(simdjson::NO_SUCH_FIELD);
}

// Empty for other types.
inline std::string_view text_in(const JsonValue& value) {
    std::string_view text;
    return value.get(text) == simdjson::SUCCESS ? text : std::string_view();
}

// A whole number of at most 63 bits; nothing for other types.
inline std::optional<std::int64_t> whole_in(const JsonValue& value) {
    std::int64_t number = 0;
    return value.is_int64() && value.get(number) == simdjson::SUCCESS ? std::optional(number)
                                                                      : std::nullopt;
}

// Empty for what is no list.
inline std::vector<simdjson::dom::element> items_in(const JsonValue& value) {
    simdjson::dom::array list;
    return value.get(list) == simdjson::SUCCESS
               ? std::vector<simdjson::dom::element>(list.begin(), list.end())
               : std::vector<simdjson::dom::element>();
}

constexpr std::int64_t most_json_elements = std::int64_t{1} << 48;
constexpr int deepest_shape = 2;

// The elements of a tensor, [525312], or of a list of tensors, [[525312], []]; -1: too many, or
// no shape. At the deepest, only a tensor.
inline std::int64_t elements_in(const JsonValue& shape, int depth = 0) {
    if (!shape.is_array() || depth > deepest_shape) {
        return -1;
    }
    std::int64_t product = 1;
    std::int64_t sum = 0;
    bool of_lists = false;
    for (const simdjson::dom::element part : items_in(shape)) {
        const bool is_list = part.is_array();
        // As deep as the argument says. NOLINTNEXTLINE(misc-no-recursion)
        const std::int64_t size =
            is_list ? elements_in(part, depth + 1) : whole_in(part).value_or(-1);
        if (size < 0 || (is_list ? size > most_json_elements - sum
                                 : product > 0 && size > most_json_elements / product)) {
            return -1;
        }
        of_lists |= is_list;
        (is_list ? sum : product) = is_list ? sum + size : product * size;
    }
    return of_lists ? sum : product;
}

}  // namespace bucketwise
