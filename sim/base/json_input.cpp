#include "sim/base/json_input.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "sim/base/invariant.h"
#include "sim/text/edit_distance.h"

namespace bucketwise {
namespace {

constexpr int deepest_nesting = 64;
constexpr std::size_t longest_string = 200;
constexpr std::size_t longest_quote = 40;

std::string escaped(std::string_view key) {  // RFC 6901
    std::string result;
    for (const char c : key) {
        result += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    return result;
}

// A key or string as it may be shown on a terminal: quoted, control characters escaped, shortened.
std::string in_quotes(std::string_view text) {
    std::string_view shown = text.substr(0, longest_quote);
    std::string dumped = Json(shown).dump(-1, ' ', true, Json::error_handler_t::replace);
    if (shown.size() < text.size()) {
        dumped.insert(dumped.size() - 1, "...");
    }
    return dumped;
}

// A pointer's last part as it may be shown: keys can hold anything.
std::string shown_key(std::string_view key) {
    const std::string q = in_quotes(key);
    return escaped(q.substr(1, q.size() - 2));
}

std::string described(const Json& value) {
    switch (value.type()) {
        case Json::value_t::object:
            return "an object";
        case Json::value_t::array:
            return value.empty() ? "an empty array" : fmt::format("an array of {}", value.size());
        case Json::value_t::string:
            return in_quotes(value.get_ref<const std::string&>());
        case Json::value_t::null:
            return "null";
        default:
            return value.dump();
    }
}

// Finds duplicate keys and deep nesting, which the document itself can no longer show.
class Watcher {
  public:
    explicit Watcher(const std::string& file) : file_(file) {}

    bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
        switch (event) {
            case Json::parse_event_t::object_start:
            case Json::parse_event_t::array_start:
                if (depth >= deepest_nesting) {
                    throw InputError(file_, "",
                                     fmt::format("nesting no deeper than {}", deepest_nesting),
                                     "a deeper one");
                }
                open_.emplace_back();
                break;
            case Json::parse_event_t::object_end:
            case Json::parse_event_t::array_end:
                open_.pop_back();
                break;
            case Json::parse_event_t::key:
                add_key(parsed.get_ref<const std::string&>());
                break;
            case Json::parse_event_t::value:
                break;
        }
        return true;
    }

  private:
    void add_key(const std::string& key) {
        path_.resize(open_.size());
        path_.back() = key;
        if (open_.back().insert(key).second) {
            return;
        }
        std::string pointer;
        for (const std::string& part : path_) {
            if (!part.empty()) {
                pointer += '/';
                pointer += shown_key(part);
            }
        }
        throw InputError(file_, pointer, "each key once",
                         fmt::format("the key {} twice", in_quotes(key)));
    }

    const std::string& file_;
    std::vector<std::set<std::string>> open_;  // keys seen, by depth; arrays have none
    std::vector<std::string> path_;
};

// nlohmann's message is "[json.exception...] parse error at line 1, column 2: ...".
std::string without_prefix(std::string message) {
    const std::size_t end = message.find("] ");
    if (end != std::string::npos) {
        message.erase(0, end + 2);
    }
    // It quotes what was read last, which may be no text at all.
    std::replace_if(
        message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
    return message;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
    try {
        return Json::parse(text.begin(), text.end(), Watcher(file));
    } catch (const Json::parse_error& error) {
        throw InputError(file, "", "valid JSON", without_prefix(error.what()));
    } catch (const Json::out_of_range& error) {
        throw InputError(file, "", "numbers within the range of a double",
                         without_prefix(error.what()));
    }
}

std::string did_you_mean(std::string_view text, const std::vector<std::string_view>& known) {
    const std::string_view nearest = nearest_name(text, known);
    return nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest);
}

void JsonPlace::fail_name(const std::string& expected,
                          const std::vector<std::string_view>& known) const {
    fail(expected,
         described(*value) +
             (value->is_string() ? did_you_mean(value->get_ref<const std::string&>(), known) : ""));
}

void JsonPlace::fail(const std::string& expected) const {
    fail(expected, described(*value));
}

void JsonPlace::fail(const std::string& expected, const std::string& got) const {
    throw InputError(file, pointer, expected, got);
}

double read_number(const JsonPlace& place, const NumberRange& range) {
    const std::string expected =
        fmt::format("a number {} {} and at most {}",
                    range.lowest_excluded ? "above" : "of at least", range.lowest, range.highest);
    if (!place.value->is_number()) {
        place.fail(expected);
    }
    const auto number = place.value->get<double>();
    const bool above = range.lowest_excluded ? number > range.lowest : number >= range.lowest;
    if (!std::isfinite(number) || !above || number > range.highest) {
        place.fail(expected);
    }
    return number;
}

std::int64_t read_integer(const JsonPlace& place, std::int64_t lowest, std::int64_t highest) {
    const std::string expected = fmt::format("an integer from {} to {}", lowest, highest);
    const Json& value = *place.value;
    if (!value.is_number()) {
        place.fail(expected);
    }
    // Beyond 2^53 a double no longer tells integers apart; all bounds lie well below.
    const auto number = value.get<double>();
    if (number != std::floor(number) || number < static_cast<double>(lowest) ||
        number > static_cast<double>(highest)) {
        place.fail(expected);
    }
    return static_cast<std::int64_t>(number);
}

bool read_boolean(const JsonPlace& place) {
    if (!place.value->is_boolean()) {
        place.fail("true or false");
    }
    return place.value->get<bool>();
}

std::string read_string(const JsonPlace& place) {
    return read_text(place, longest_string);
}

std::string read_text(const JsonPlace& place, std::size_t longest) {
    if (!place.value->is_string()) {
        place.fail("a string");
    }
    const auto& text = place.value->get_ref<const std::string&>();
    const bool printable = std::none_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < ' ' || byte == 127;
    });
    if (text.empty() || text.size() > longest || !printable) {
        place.fail(fmt::format("1 to {} bytes of text without control characters", longest));
    }
    return text;
}

std::vector<JsonPlace> read_array(const JsonPlace& place, std::size_t most) {
    const Json& value = *place.value;
    if (!value.is_array() || value.empty() || value.size() > most) {
        place.fail(fmt::format("an array of 1 to {} elements", most));
    }
    std::vector<JsonPlace> elements;
    elements.reserve(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
        elements.push_back({&value[i], place.file, fmt::format("{}/{}", place.pointer, i)});
    }
    return elements;
}

JsonObject::JsonObject(JsonPlace place, std::vector<std::string_view> known)
    : place_(std::move(place)), known_(std::move(known)) {
    if (!place_.value->is_object()) {
        place_.fail("an object");
    }
    for (const auto& [key, value] : place_.value->items()) {
        if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
            throw InputError(place_.file, place_.pointer + "/" + shown_key(key),
                             fmt::format("one of the keys {}", fmt::join(known_, ", ")),
                             "an unknown key" + did_you_mean(key, known_));
        }
    }
}

bool JsonObject::has(std::string_view key) const {
    invariant(std::find(known_.begin(), known_.end(), key) != known_.end(),
              "a key that is read is known");
    return place_.value->contains(std::string(key));
}

JsonPlace JsonObject::at(std::string_view key) const {
    if (std::optional<JsonPlace> found = find(key)) {
        return *std::move(found);
    }
    throw InputError(place_.file, place_.pointer, fmt::format("the key {}", key),
                     "an object without it");
}

std::optional<JsonPlace> JsonObject::find(std::string_view key) const {
    if (!has(key)) {
        return std::nullopt;
    }
    return JsonPlace{&place_.value->at(std::string(key)), place_.file,
                     fmt::format("{}/{}", place_.pointer, key)};
}

void JsonObject::exclusive(std::string_view a, std::string_view b) const {
    if (has(a) && has(b)) {
        throw InputError(place_.file, place_.pointer,
                         fmt::format("at most one of the keys {} and {}", a, b), "both");
    }
}

Duration read_duration_ms(const JsonPlace& place) {
    return duration_from_ms(read_number(place, {0, 1e7}));
}

Duration read_duration_us(const JsonPlace& place) {
    return duration_from_us(read_number(place, {0, 1e6}));
}

BytesPerSecond read_bandwidth_gb_per_s(const JsonPlace& place) {
    return bandwidth_from_gb_per_s(read_number(place, {1e-6, 1e6}));
}

Bytes read_bytes(const JsonPlace& place) {
    return {read_integer(place, 1, std::int64_t{1} << 50)};
}

Bytes read_cap_mib(const JsonPlace& place) {
    const double mib = read_number(place, {0, 1 << 30, true});
    const auto bytes = static_cast<std::int64_t>(mib * static_cast<double>(bytes_per_mib));
    if (bytes < 1) {
        place.fail("a cap of at least one byte");
    }
    return {bytes};
}

}  // namespace bucketwise
