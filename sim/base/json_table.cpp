#include "sim/base/json_table.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

Json text_schema(std::size_t longest) {
    return {{"type", "string"},
            {"minLength", 1},
            {"maxLength", longest},
            {"not", {{"pattern", "[\\u0000-\\u001f\\u007f]"}}}};
}

}  // namespace

Json reference_to(const ObjectText& object) {
    std::string name(object.name);
    std::ranges::replace(name, ' ', '_');
    return {{"$ref", "#/$defs/" + name}};
}

namespace as {

JsonType<double> number(const NumberRange& range) {
    Json schema{{"type", "number"},
                {range.lowest_excluded ? "exclusiveMinimum" : "minimum", range.lowest},
                {"maximum", range.highest}};
    return {{std::move(schema), "number"},
            [range](const JsonPlace& place) { return read_number(place, range); },
            [](double value) { return Json(value); }};
}

JsonType<std::int64_t> integer(std::int64_t lowest, std::int64_t highest) {
    Json schema{{"type", "integer"}, {"minimum", lowest}, {"maximum", highest}};
    return {{std::move(schema), "integer"},
            [=](const JsonPlace& place) { return read_integer(place, lowest, highest); },
            [](std::int64_t value) { return Json(value); }};
}

JsonType<bool> boolean() {
    return {
        {{{"type", "boolean"}}, "boolean"}, read_boolean, [](bool value) { return Json(value); }};
}

JsonType<std::string> text(std::size_t longest) {
    return {{text_schema(longest), "text"},
            [longest](const JsonPlace& place) { return read_text(place, longest); },
            [longest](const std::string& value) { return Json(cut_text(value, longest)); }};
}

JsonType<Duration> milliseconds() {
    return {number({0, 1e7}), read_duration_ms, to_ms};
}

JsonType<Duration> microseconds(double highest) {
    return {number({0, highest}),
            [highest](const JsonPlace& place) {
                return duration_from_us(read_number(place, {0, highest}));
            },
            to_us};
}

JsonType<BytesPerSecond> gb_per_s() {
    return {number({1e-6, 1e6}), read_bandwidth_gb_per_s, to_gb_per_s};
}

JsonType<Bytes> bytes() {
    return {integer(1, std::int64_t{1} << 50), read_bytes, byte_count};
}

JsonType<Bytes> cap_mib() {
    JsonDescription described = number({1.0 / static_cast<double>(bytes_per_mib), 1 << 30});
    described.schema["exclusiveMinimum"] = 0;
    described.called = "MiB";
    return {std::move(described), read_cap_mib, to_mib};
}

Json names_schema(const std::vector<std::string_view>& names) {
    return {{"enum", names}};
}

std::string names_text(const std::vector<std::string_view>& names) {
    return fmt::format("`{}`", fmt::join(names, "`, `"));
}

}  // namespace as

}  // namespace bucketwise
