#include "cli/shell/size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/shell/csv.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 7> units{{{"B", 1},
                                                                    {"kB", 1e3},
                                                                    {"MB", 1e6},
                                                                    {"GB", 1e9},
                                                                    {"KiB", 1024.0},
                                                                    {"MiB", 1024.0 * 1024},
                                                                    {"GiB", 1024.0 * 1024 * 1024}}};
constexpr double largest_bytes = 1125899906842624.0;  // 2^50, as in scenario files

}  // namespace

Bytes parse_size(const std::string& text, const std::string& option) {
    const std::string_view typed = trimmed(text);
    double number = 0;
    const auto [end, error] = std::from_chars(typed.data(), typed.data() + typed.size(), number);
    const std::string_view unit =
        trimmed(typed.substr(static_cast<std::size_t>(end - typed.data())));
    for (const auto& [name, factor] : units) {
        const double bytes = number * factor;
        if (error == std::errc{} && unit == name && bytes >= 1 && bytes <= largest_bytes) {
            return {static_cast<std::int64_t>(bytes)};
        }
    }
    throw InputError(
        option, "",
        "a size from 1 B to 2^50 B with a unit (B, kB, MB, GB, KiB, MiB, GiB), such as 25MiB",
        "\"" + text + "\"");
}

std::string text_of(Bytes size) {
    constexpr std::array<const char*, 4> names{"B", "KiB", "MiB", "GiB"};
    auto number = static_cast<double>(size.count);
    std::size_t unit = 0;
    while (number >= 1024 && unit + 1 < names.size()) {
        number /= 1024;
        ++unit;
    }
    std::string text = fmt::format("{:.2f}", number);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') {
        text.pop_back();
    }
    return text + names[unit];
}

std::string message_text(Bytes size) {
    if (size.count % 1000 != 0) {
        return text_of(size);
    }
    std::int64_t number = size.count;
    std::string_view unit;
    for (const std::string_view larger : {"kB", "MB", "GB"}) {
        if (number % 1000 == 0) {
            number /= 1000;
            unit = larger;
        }
    }
    return fmt::format("{}{}", number, unit);
}

std::vector<Bytes> parse_sizes(const std::string& text, const std::string& option) {
    return transformed(split_at_commas(text),
                       [&](const std::string& part) { return parse_size(part, option); });
}

std::vector<Bytes> sizes_or_auto(const std::string& text, const std::string& option) {
    return text == "auto" ? std::vector<Bytes>{} : parse_sizes(text, option);
}

void check_caps(const std::vector<Bytes>& caps, const SyncRequest& sync) {
    const Bytes least = least_cap(sync);
    const auto small = std::ranges::find_if(caps, [&](Bytes cap) { return cap < least; });
    if (small != caps.end()) {
        throw InputError(
            "--bucket-cap", "",
            fmt::format("{} or more with torch.compile (/sync/compiled)", text_of(least)),
            text_of(*small));
    }
}

void check_message(Bytes size, DType dtype, const std::string& option) {
    constexpr Bytes largest_message{std::int64_t{16} << 30};
    const Bytes element = element_size(dtype);
    if (size.count % element.count != 0 || size > largest_message) {
        throw InputError(option, "",
                         fmt::format("whole elements of {} ({} bytes each), up to 16 GiB",
                                     name_of(dtype), element.count),
                         fmt::format("{} bytes", size.count));
    }
}

}  // namespace bucketwise
