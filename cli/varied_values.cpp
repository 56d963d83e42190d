#include "cli/varied_values.h"

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
__extension__ using WideInt = __int128;
constexpr WideInt largest_mantissa = 1'000'000'000'000'000'000;  // 10^18: with its sign in 64 bits

[[noreturn]] void fail(const std::string& pointer, const std::string& expected,
                       const std::string& got) {
    throw InputError("--vary", pointer, expected,
                     Json(got).dump(-1, ' ', true, Json::error_handler_t::replace));
}

// mantissa x 10^exponent, as it was typed.
struct Decimal {
    WideInt mantissa = 0;
    int exponent = 0;

    [[nodiscard]] bool fits() const {
        return -largest_mantissa <= mantissa && mantissa <= largest_mantissa;
    }
    // The double nearest to it.
    [[nodiscard]] double value() const {
        const std::string text =
            fmt::format("{}e{}", static_cast<std::int64_t>(mantissa), exponent);
        double number = 0;
        std::from_chars(text.data(), text.data() + text.size(), number);
        return number;
    }
};

// A number as JSON writes it. None: it is no such number, or has more than 18 digits.
std::optional<Decimal> parse_decimal(std::string_view text) {
    const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
    const bool only_number = text.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
    if (!only_number || !json.is_number() || !std::isfinite(json.get<double>())) {
        return std::nullopt;
    }
    Decimal decimal;
    const std::size_t end = std::min(text.find_first_of("eE"), text.size());
    bool after_point = false;
    for (const char c : text.substr(0, end)) {
        if (c == '.') {
            after_point = true;
        } else if (c != '-') {
            decimal.mantissa = 10 * decimal.mantissa + (c - '0');
            decimal.exponent -= after_point ? 1 : 0;
        }
        if (!decimal.fits()) {
            return std::nullopt;
        }
    }
    if (text.front() == '-') {
        decimal.mantissa = -decimal.mantissa;
    }
    if (end < text.size()) {
        const bool plus = text[end + 1] == '+';
        int exponent = 0;
        std::from_chars(text.data() + end + (plus ? 2 : 1), text.data() + text.size(), exponent);
        decimal.exponent += exponent;
    }
    constexpr int most_decimals = 400;
    return std::abs(decimal.exponent) <= most_decimals ? std::optional(decimal) : std::nullopt;
}

struct Range {
    Decimal first;
    Decimal last;
    char operation = '+';  // x, + or -
    Decimal by;
    bool whole = false;  // all three are
};

bool is_whole(std::string_view text) {
    return text.find_first_of(".eE") == std::string_view::npos;
}

// None: no range was meant.
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
    const std::optional<Decimal> begin = parse_decimal(first);
    const std::optional<Decimal> end = parse_decimal(last);
    const std::optional<Decimal> step = parse_decimal(by);
    const char operation = text[colon + 1];
    if (!begin || !end || !step ||
        std::string_view("x+-").find(operation) == std::string_view::npos) {
        fail(pointer, expected, text);
    }
    return Range{*begin, *end, operation, *step, is_whole(first) && is_whole(by)};
}

// A whole one may have decimals, all of them 0, where others that it was computed with have some.
Json number_of(Decimal decimal, bool whole) {
    if (!whole) {
        return decimal.value();
    }
    for (; decimal.exponent < 0; ++decimal.exponent) {
        decimal.mantissa /= 10;
    }
    return static_cast<std::int64_t>(decimal.mantissa);
}

// With the exponent lowered to `exponent`; none: too many digits.
std::optional<WideInt> mantissa_at(const Decimal& decimal, int exponent) {
    Decimal lowered = decimal;
    for (; lowered.exponent > exponent && lowered.mantissa != 0; --lowered.exponent) {
        lowered.mantissa *= 10;
        if (!lowered.fits()) {
            return std::nullopt;
        }
    }
    return lowered.mantissa;
}

std::vector<Json> arithmetic(const Range& range, const std::string& pointer,
                             const std::string& text) {
    const int exponent = std::min({range.first.exponent, range.last.exponent, range.by.exponent});
    const std::optional<WideInt> first = mantissa_at(range.first, exponent);
    const std::optional<WideInt> last = mantissa_at(range.last, exponent);
    const std::optional<WideInt> size = mantissa_at(range.by, exponent);
    if (!first || !last || !size) {
        fail(pointer, "numbers that 18 digits can tell apart", text);
    }
    const WideInt step = range.operation == '-' ? -*size : *size;
    const bool leads_there = *size > 0 && (step > 0 ? *first <= *last : *first >= *last);
    if (!leads_there) {
        fail(pointer, "a step above 0 that leads from the first number to the second", text);
    }
    const WideInt count = (*last - *first) / step + 1;
    if (count > WideInt{most_values}) {
        fail(pointer, fmt::format("at most {} values", most_values), text);
    }
    std::vector<Json> values;
    for (WideInt i = 0; i < count; ++i) {
        values.push_back(number_of({*first + i * step, exponent}, range.whole));
    }
    return values;
}

std::vector<Json> geometric(const Range& range, const std::string& pointer,
                            const std::string& text) {
    const double first = range.first.value();
    const double last = range.last.value();
    const double factor = range.by.value();
    const bool rises = factor > 1;
    const bool leads_there = first > 0 && last > 0 && factor > 0 && factor != 1 &&
                             (rises ? first <= last : first >= last);
    if (!leads_there) {
        fail(pointer, "numbers above 0 and a factor that leads from the first to the second", text);
    }
    constexpr double rounding = 1e-9;  // what is as near to the end is the end
    std::vector<Json> values;
    std::optional<Decimal> exact = range.first;
    for (int i = 0;; ++i) {
        const double value = exact ? exact->value() : first * std::pow(factor, i);
        const bool at_end = std::abs(value - last) <= rounding * last;
        if (!at_end && (rises ? value > last : value < last)) {
            return values;
        }
        if (values.size() == most_values) {
            fail(pointer, fmt::format("at most {} values", most_values), text);
        }
        values.push_back(at_end  ? number_of(range.last, range.whole && range.last.exponent == 0)
                         : exact ? number_of(*exact, range.whole)
                                 : Json(value));
        if (at_end) {
            return values;
        }
        if (exact) {
            exact->mantissa *= range.by.mantissa;
            exact->exponent += range.by.exponent;
            exact = exact->fits() ? exact : std::nullopt;
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
