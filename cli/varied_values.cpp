#include "cli/varied_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_values = 1'000'000;
[[noreturn]] void fail(const std::string& pointer, const std::string& expected,
                       const std::string& got) {
    throw InputError("--vary", pointer, expected,
                     Json(got).dump(-1, ' ', true, Json::error_handler_t::replace));
}

// A number as JSON writes it, with at most 18 digits, which a long double holds.
std::optional<long double> parse_decimal(std::string_view text) {
    constexpr std::ptrdiff_t most_digits = 18;
    const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
    const bool only_number = text.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
    const std::string_view mantissa = text.substr(0, text.find_first_of("eE"));
    if (!only_number || !json.is_number() || !std::isfinite(json.get<double>()) ||
        std::ranges::count_if(mantissa, [](char c) { return c >= '0' && c <= '9'; }) >
            most_digits) {
        return std::nullopt;
    }
    long double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

struct Range {
    long double first = 0;
    long double last = 0;
    char operation = '+';  // x, + or -
    long double by = 0;
    bool whole = false;       // all values but perhaps the last
    bool whole_last = false;  // the last, too
};

bool is_whole(std::string_view text) {
    return text.find_first_of(".eE") == std::string_view::npos;
}

// Empty: the text is no range.
std::optional<Range> parse_range(const std::string& pointer, const std::string& text) {
    const std::size_t dots = text.find("..");
    if (dots == std::string::npos ||
        !Json::parse(text.substr(0, dots), nullptr, false).is_number()) {
        return std::nullopt;
    }
    const char* const expected =
        "a range such as 8..65536:x2, 0..1:+0.1 or 100..0:-5, of numbers of at most 18 digits";
    const std::size_t colon = text.find(':', dots);
    if (colon == std::string::npos || colon + 2 >= text.size()) {
        fail(pointer, expected, text);
    }
    const std::string first = text.substr(0, dots);
    const std::string last = text.substr(dots + 2, colon - dots - 2);
    const std::string by = text.substr(colon + 2);
    const std::optional<long double> begin = parse_decimal(first);
    const std::optional<long double> end = parse_decimal(last);
    const std::optional<long double> step = parse_decimal(by);
    const char operation = text[colon + 1];
    if (!begin || !end || !step ||
        std::string_view("x+-").find(operation) == std::string_view::npos) {
        fail(pointer, expected, text);
    }
    const bool whole = is_whole(first) && is_whole(by);
    return Range{*begin, *end, operation, *step, whole, whole && is_whole(last)};
}

// The decimal of at most 17 digits that is nearest, so that three times 0.1 is 0.3.
Json number_of(long double value, bool whole) {
    if (whole) {
        return std::llround(value);
    }
    const std::string text = fmt::format("{:.17g}", value);
    double number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

constexpr long double rounding = 1e-9L;  // a value as near to the end is the end

std::vector<Json> arithmetic(const Range& range, const std::string& pointer,
                             const std::string& text) {
    const long double step = range.operation == '-' ? -range.by : range.by;
    const long double steps = (range.last - range.first) / step;
    if (!(range.by > 0) || steps < 0) {
        fail(pointer, "a step above 0 that leads from the first number to the second", text);
    }
    if (steps >= most_values) {
        fail(pointer, fmt::format("at most {} values", most_values), text);
    }
    std::vector<Json> values;
    for (int i = 0; i <= static_cast<int>(steps + rounding); ++i) {
        values.push_back(number_of(range.first + i * step, range.whole));
    }
    return values;
}

std::vector<Json> geometric(const Range& range, const std::string& pointer,
                            const std::string& text) {
    const auto& [first, last, operation, factor, whole, whole_last] = range;
    const bool rises = factor > 1;
    const bool leads_there = first > 0 && last > 0 && factor > 0 && factor != 1 &&
                             (rises ? first <= last : first >= last);
    if (!leads_there) {
        fail(pointer, "numbers above 0 and a factor that leads from the first to the second", text);
    }
    std::vector<Json> values;
    for (int i = 0;; ++i) {
        const long double value = first * std::pow(factor, i);
        const bool at_end = std::abs(value - last) <= rounding * last;
        if (!at_end && (rises ? value > last : value < last)) {
            return values;
        }
        if (values.size() == most_values) {
            fail(pointer, fmt::format("at most {} values", most_values), text);
        }
        values.push_back(at_end ? number_of(last, whole_last) : number_of(value, whole));
        if (at_end) {
            return values;
        }
    }
}

// At commas outside of double quotes.
std::vector<std::string> items_of(const std::string& text) {
    std::vector<std::string> items(1);
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"') {
            quoted = !quoted;
        }
        if (text[i] == '\\' && quoted && i + 1 < text.size()) {
            items.back() += text[i++];
        } else if (text[i] == ',' && !quoted) {
            items.emplace_back();
            continue;
        }
        items.back() += text[i];
    }
    return items;
}

Json parse_item(const std::string& pointer, const std::string& item) {
    Json value = Json::parse(item, nullptr, false);
    if (value.is_discarded()) {
        value = item;
        if (item.empty() || !is_utf8(item)) {
            fail(pointer, "values, of which none is empty or other bytes than UTF-8", item);
        }
    }
    if (value.is_structured() || value.is_null()) {
        fail(pointer, "numbers, strings, true and false", item);
    }
    return value;
}

}  // namespace

VariedKey parse_varied_key(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || text.front() != '/') {
        fail("", "/json/pointer=VALUES", text);
    }
    VariedKey key{text.substr(0, equals), {}};
    const std::string listed = text.substr(equals + 1);
    if (const std::optional<Range> range = parse_range(key.pointer, listed)) {
        key.values = range->operation == 'x' ? geometric(*range, key.pointer, listed)
                                             : arithmetic(*range, key.pointer, listed);
        return key;
    }
    const std::vector<std::string> items = items_of(listed);
    if (items.size() > most_values) {
        fail(key.pointer, fmt::format("at most {} values", most_values), "more");
    }
    for (const std::string& item : items) {
        key.values.push_back(parse_item(key.pointer, item));
    }
    return key;
}

}  // namespace bucketwise
