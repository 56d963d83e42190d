// Names of the values of an enumeration, each written once, beside its declaration.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {

// The names of values that count from zero, in the order of their declaration:
//   template <> inline constexpr auto names_of<Fabric> = names("nvlink", "pcie");
template <typename Value>
inline constexpr auto names_of = nullptr;
template <typename... Texts>
constexpr auto names(Texts... texts) {
    return std::array<std::string_view, sizeof...(texts)>{texts...};
}
template <typename Value>
concept Named = requires {
    names_of<Value>.size();
};

// Precondition (asserted): the value has a name.
template <Named Value>
constexpr std::string_view name_of(Value value) {
    const auto index = static_cast<std::size_t>(value);
    invariant(index < names_of<Value>.size(), "every value of an enumeration has a name");
    return names_of<Value>[index];
}

// Another word for a value, which is understood wherever its name is, and never written.
template <typename Value>
struct OtherName {
    std::string_view text;
    Value value;
};

// The other words for the values of an enumeration, beside its declaration; none unless given.
template <typename Value>
inline constexpr std::array<OtherName<Value>, 0> other_names_of{};

// Whether `text` is the value's name or another word for it.
template <typename Value>
constexpr bool is_called(const Value& value, std::string_view text) {
    if constexpr (Named<Value>) {
        for (const auto& other : other_names_of<Value>) {
            if (other.value == value && other.text == text) {
                return true;
            }
        }
    }
    return name_of(value) == text;
}

// All values, in the order of their declaration.
template <Named Value>
inline constexpr auto every = []<std::size_t... index>(std::index_sequence<index...>) {
    return std::array{static_cast<Value>(index)...};
}
(std::make_index_sequence<names_of<Value>.size()>{});

}  // namespace bucketwise
