// Writing JSON: fields that are left out where there is nothing to say, and lists.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/base/json.h"

namespace bucketwise {

// Sets `key` to as(*value) where there is a value; else the key is left out.
template <typename Value, typename As = std::identity>
void add_optional(Json& json, std::string_view key, const std::optional<Value>& value,
                  const As& as = {}) {
    if (value) {
        json[std::string(key)] = as(*value);
    }
}

template <typename Value>
void add_if(bool condition, Json& json, std::string_view key, const Value& value) {
    if (condition) {
        json[std::string(key)] = value;
    }
}

// The same for a text or a list that is not empty.
template <typename Value>
void add_unless_empty(Json& json, std::string_view key, const Value& value) {
    add_if(!value.empty(), json, key, value);
}

// [as(value), ...]; of no values an empty list.
template <typename Values, typename As = std::identity>
Json json_list(const Values& values, const As& as = {}) {
    Json list = Json::array();
    for (const auto& value : values) {
        list.push_back(as(value));
    }
    return list;
}

}  // namespace bucketwise
