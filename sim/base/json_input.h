// Strict reading of JSON: every key is known, every value has the expected type and range, and
// every error names file, pointer, expected and got. Parsers of scenario and link files are built
// on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

// Parses one JSON document. Refuses what RFC 8259 leaves open or forbids: duplicate keys, nesting
// deeper than 64, numbers beyond double, NaN, bytes after the end. `file` is for messages only.
Json parse_json(std::string_view text, const std::string& file);

// A value and where it stands.
struct JsonPlace {
    const Json* value = nullptr;
    std::string file;
    std::string pointer;  // RFC 6901

    // Throws the error of a value that is not as expected; `got` describes the value unless given.
    [[noreturn]] void fail(const std::string& expected) const;
    [[noreturn]] void fail(const std::string& expected, const std::string& got) const;
    // For a value that should be one of these names; suggests the nearest.
    [[noreturn]] void fail_name(const std::string& expected,
                                const std::vector<std::string_view>& known) const;
};

// " (did you mean NAME?)", NAME being the one of `known` that is near `text`; empty where none is.
std::string did_you_mean(std::string_view text, const std::vector<std::string_view>& known);

// Bounds of a number; the message says which one was violated.
struct NumberRange {
    double lowest = 0;
    double highest = 0;
    bool lowest_excluded = false;  // lowest < x instead of lowest <= x
};

double read_number(const JsonPlace& place, const NumberRange& range);
std::int64_t read_integer(const JsonPlace& place, std::int64_t lowest, std::int64_t highest);
bool read_boolean(const JsonPlace& place);
// A string without control characters, at most 200 bytes long.
std::string read_string(const JsonPlace& place);
// At most `longest` bytes long.
std::string read_text(const JsonPlace& place, std::size_t longest);
// Each element of a non-empty array with at most `most` elements.
std::vector<JsonPlace> read_array(const JsonPlace& place, std::size_t most);

// One of `choices`, each with a name_of(); the message lists them all.
template <typename Choices>
auto read_choice(const JsonPlace& place, const Choices& choices) {
    std::string listed;
    std::vector<std::string_view> known;
    for (const auto choice : choices) {
        if (place.value->is_string() &&
            is_called(choice, place.value->template get_ref<const std::string&>())) {
            return choice;
        }
        known.push_back(name_of(choice));
        listed += (listed.empty() ? "" : ", ") + std::string(known.back());
    }
    place.fail_name("one of " + listed, known);
}

// An object all of whose keys are among `known`; construction throws on any other key, suggesting
// the nearest known one.
class JsonObject {
  public:
    JsonObject(JsonPlace place, std::vector<std::string_view> known);

    [[nodiscard]] bool has(std::string_view key) const;
    // Throws when the key is missing.
    [[nodiscard]] JsonPlace at(std::string_view key) const;
    [[nodiscard]] std::optional<JsonPlace> find(std::string_view key) const;
    [[nodiscard]] const JsonPlace& place() const { return place_; }

    // Where the key is there, `target` becomes read(its place, limits...); else it stays.
    template <typename Target, typename Read, typename... Limits>
    void read_optional(std::string_view key, Target& target, const Read& read,
                       const Limits&... limits) const {
        if (const auto found = find(key)) {
            target = read(*found, limits...);
        }
    }
    template <typename Target, typename Choices>
    void read_optional_choice(std::string_view key, Target& target, const Choices& choices) const {
        if (const auto found = find(key)) {
            target = read_choice(*found, choices);
        }
    }

    // Throws when both keys are there.
    void exclusive(std::string_view a, std::string_view b) const;

  private:
    JsonPlace place_;
    std::vector<std::string_view> known_;
};

// Quantities. The bounds are wide enough for anything real and keep every sum within int64.
Duration read_duration_ms(const JsonPlace& place);               // 0 to 10^7 ms
Duration read_duration_us(const JsonPlace& place);               // 0 to 10^6 us
BytesPerSecond read_bandwidth_gb_per_s(const JsonPlace& place);  // 10^-6 to 10^6 GB/s
Bytes read_bytes(const JsonPlace& place);                        // 1 to 2^50
// A cap as PyTorch reads it: int(mib x 2^20) bytes, at least one.
Bytes read_cap_mib(const JsonPlace& place);  // above 0, up to 2^30 MiB

}  // namespace bucketwise
