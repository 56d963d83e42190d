// Lists made of lists, element by element.
#pragma once

#include <functional>
#include <iterator>
#include <type_traits>
#include <vector>

namespace bucketwise {

// {value(first), value(second), ...}; `value` may be a member.
template <typename Values, typename Value>
auto transformed(const Values& values, const Value& value) {
    std::vector<std::decay_t<decltype(std::invoke(value, *std::begin(values)))>> result;
    result.reserve(std::size(values));
    for (const auto& element : values) {
        result.push_back(std::invoke(value, element));
    }
    return result;
}

}  // namespace bucketwise
