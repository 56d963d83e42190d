// Python's pickles as far as they hold data: what PyTorch's C++ pickler and Python's own write of
// dictionaries, lists, tuples, strings, numbers, booleans and None.
//
// A pickle is a program for a stack machine that may call anything. Here nothing is ever called: an
// operation that would is refused by its name. What a pickle refers to twice is kept once, so what
// unfolds without end takes no more memory than its bytes say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "import/source/byte_source.h"
#include "sim/base/json.h"

namespace bucketwise {

enum class PickledKind : std::uint8_t { none, boolean, integer, number, text, list, dictionary };

struct PickledValue {
    PickledKind kind = PickledKind::none;
    std::int64_t integer = 0;  // of a boolean 0 or 1; of a text its place in `texts`
    double number = 0;
    std::vector<std::uint32_t> items = {};  // of a dictionary key, value, key, value, ...
    bool operator==(const PickledValue&) const = default;
};

// Values refer to each other by their places, in circles too.
struct Pickle {
    std::vector<PickledValue> values = {};
    std::vector<std::string> texts = {};
    std::uint32_t root = 0;
    bool operator==(const Pickle&) const = default;

    // A member of a dictionary; null: it is no dictionary, or has none.
    [[nodiscard]] const PickledValue* find(const PickledValue& dictionary,
                                           std::string_view key) const;
};

// What a pickle may hold.
constexpr std::size_t most_pickled_values = 2'000'000;
constexpr std::size_t most_pickled_text = std::size_t{64} << 20;

// Throws InputError, which names `file` and the byte, for what is no pickle, is torn, calls
// something, or is larger than the limits above.
Pickle read_pickle(const ByteSource& source, const std::string& file);

// A value as JSON, without members called `but_for`. Throws InputError where it unfolds to more
// than a hundred thousand values, or is nested in more than 20 (as one that holds itself is).
Json unfolded(const Pickle& pickle, const PickledValue& value, std::string_view but_for,
              const std::string& file);

}  // namespace bucketwise
