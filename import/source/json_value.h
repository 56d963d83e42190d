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

}  // namespace bucketwise
