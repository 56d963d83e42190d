#include "import/settings/reading.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// Also of Python, which allows underscores.
std::optional<double> number_in(std::string_view text) {
    std::string digits;
    std::ranges::copy_if(text, std::back_inserter(digits), [](char c) { return c != '_'; });
    double value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc{} && rest == end && std::isfinite(value) ? std::optional(value)
                                                                       : std::nullopt;
}

// A script's expression by its default, where it has one.
const Json& resolved(const Json& value) {
    static const Json nothing;
    if (!value.is_object() || !value.contains("expression")) {
        return value;
    }
    const auto found = value.find("default");
    return found == value.end() ? nothing : *found;
}

}  // namespace

std::string lowered(std::string_view typed) {
    std::string text(typed);
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

void add_remarks(const std::vector<Remark>& remarks, std::vector<std::string>& sentences) {
    for (const auto& [holds, text] : remarks) {
        if (holds) {
            sentences.emplace_back(text);
        }
    }
}

void read_checkpointing(const JsonPlace& place, TypedSettings& settings) {
    if (is_on(place) && !settings.recompute) {
        settings.recompute.emplace();
    }
}

void suspect_unit(double value, std::string_view key, bool elements, TypedSettings& settings) {
    constexpr double fewest_elements = 100'000;
    constexpr double most_mib = 65'536;
    if (elements && value < fewest_elements) {
        settings.suspicious.push_back(fmt::format(
            "{} counts elements, not MiB or bytes: {} of them are {:.3g} MiB of float32", key,
            value, value * 4 / static_cast<double>(bytes_per_mib)));
    } else if (!elements && value > most_mib) {
        settings.suspicious.push_back(fmt::format(
            "{} counts MiB, not bytes: {:.0f} of them hold any model in one bucket", key, value));
    }
}

JsonPlace child(const JsonPlace& place, std::string_view key) {
    static const Json nothing;
    const Json& value = *place.value;
    const auto found = value.is_object() ? value.find(std::string(key)) : value.end();
    return {found == value.end() ? &nothing : &*found, place.file,
            place.pointer + "/" + std::string(key)};
}

bool has(const JsonPlace& place, std::string_view key) {
    return !child(place, key).value->is_null();
}

std::optional<bool> flag_at(const JsonPlace& place) {
    const Json& value = resolved(*place.value);
    if (value.is_boolean()) {
        return value.get<bool>();
    }
    const std::int64_t number = value.is_number_integer() ? value.get<std::int64_t>() : -1;
    if (number == 0 || number == 1) {
        return number == 1;
    }
    const std::string text = value.is_string() ? lowered(value.get<std::string>()) : "";
    for (const auto& [name, is] :
         {std::pair("true", true), std::pair("yes", true), std::pair("1", true),
          std::pair("false", false), std::pair("no", false), std::pair("0", false)}) {
        if (text == name) {
            return is;
        }
    }
    if (!value.is_null() && text != "auto") {
        place.fail("true or false");
    }
    return std::nullopt;
}

bool is_on(const JsonPlace& place) {
    return flag_at(place).value_or(false);
}

std::optional<double> number_at(const JsonPlace& place) {
    const Json& value = resolved(*place.value);
    if (value.is_null() || value == "auto") {
        return std::nullopt;
    }
    const auto number = value.is_number()   ? std::optional(value.get<double>())
                        : value.is_string() ? number_in(value.get_ref<const std::string&>())
                                            : std::nullopt;
    if (!number) {
        place.fail("a number");
    }
    return number;
}

std::optional<std::int64_t> count_at(const JsonPlace& place) {
    constexpr double most = 1e15;
    const std::optional<double> number = number_at(place);
    if (number && !(*number >= 1 && *number <= most && *number == std::floor(*number))) {
        place.fail("a whole number above 0");
    }
    return number ? std::optional(static_cast<std::int64_t>(*number)) : std::nullopt;
}

std::string text_at(const JsonPlace& place) {
    const Json& value = resolved(*place.value);
    if (value.is_string()) {
        return value.get<std::string>();
    }
    // torch.bfloat16 and the like.
    return place.value->is_object() ? place.value->value("expression", "") : "";
}

std::string_view last_part(std::string_view dotted) {
    return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0
}

std::optional<DType> typed_dtype(std::string_view name) {
    const std::string_view plain = last_part(name);
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
        if (is_called(dtype, plain)) {
            return dtype;
        }
    }
    const bool narrow = plain == "bfp16" || plain == "bf16-mixed";
    return narrow                           ? std::optional(DType::bfloat16)
           : plain == "no" || plain == "32" ? std::optional(DType::float32)
                                            : std::nullopt;
}

}  // namespace bucketwise
