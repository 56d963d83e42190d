#include "sim/base/json_table.h"

#include <algorithm>
#include <array>
#include <regex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

// By the end of a key that holds a quantity.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> units{{{"_us", "µs"},
                                                                              {"_ms", "ms"},
                                                                              {"_gb_per_s", "GB/s"},
                                                                              {"_mib", "MiB"},
                                                                              {"_gib", "GiB"},
                                                                              {"bytes", "bytes"}}};

std::string type_of(const KeyText& key) {
    const bool is_list = key.value.called.starts_with("list of ");
    for (const auto& [ending, unit] : units) {
        if (key.key.ends_with(ending)) {
            return (is_list ? "list of " : "") + std::string(unit);
        }
    }
    const bool is_plural =
        !is_list || key.value.called.ends_with('s') || key.value.called.ends_with("MiB");
    return key.value.called + (is_plural ? "" : "s");
}

// Without code marks and the addresses of links.
std::string plain(std::string_view markdown) {
    std::string text(markdown);
    if (text.find("](") != std::string::npos) {  // few have links, and a regex is slow
        static const std::regex links("\\[([^\\]]*)\\]\\([^)]*\\)");
        text = std::regex_replace(text, links, "$1");
    }
    std::erase(text, '`');
    return text;
}

std::string description_of(const KeyText& key) {
    const bool has_default = !key.required() && !key.usual.empty() && key.usual != "none";
    return plain(key.meaning) + (has_default ? "; default " + plain(key.usual) : "");
}

Json text_schema(std::size_t longest) {
    return {{"type", "string"},
            {"minLength", 1},
            {"maxLength", longest},
            {"not", {{"pattern", "[\\u0000-\\u001f\\u007f]"}}}};
}

std::string name_in_schema(const ObjectText& object) {
    std::string name(object.name);
    std::ranges::replace(name, ' ', '_');
    return name;
}

Json schema_of_keys(const ObjectText& object) {
    Json schema{{"type", "object"},
                {"description", plain(object.meaning)},
                {"additionalProperties", false}};
    Json all = object.conditions;
    for (const KeyText& key : object.keys) {
        Json& value = schema["properties"][std::string(key.key)] = key.value.schema;
        value["description"] = description_of(key);
        if (key.required()) {
            schema["required"].push_back(key.key);
        }
    }
    for (const JsonRule& rule : object.rules) {
        if (rule.excludes) {
            all.push_back({{"not", {{"required", {rule.key, rule.other}}}}});
        } else {
            schema["dependentRequired"][std::string(rule.key)].push_back(rule.other);
        }
    }
    add_unless_empty(schema, "allOf", all);
    return schema;
}

void add_objects(const ObjectText& object, std::map<std::string_view, const ObjectText*>& objects) {
    if (!objects.emplace(object.name, &object).second) {
        return;
    }
    for (const KeyText& key : object.keys) {
        for (const ObjectText* below : key.value.objects) {
            add_objects(*below, objects);
        }
    }
}

}  // namespace

Json reference_to(const ObjectText& object) {
    return {{"$ref", "#/$defs/" + name_in_schema(object)}};
}

std::map<std::string_view, const ObjectText*> objects_of(const ObjectText& root) {
    std::map<std::string_view, const ObjectText*> objects;
    add_objects(root, objects);
    return objects;
}

Json schema_of(const ObjectText& root) {
    Json schema = schema_of_keys(root);
    for (const auto& [name, object] : objects_of(root)) {
        if (object != &root) {
            schema["$defs"][name_in_schema(*object)] = schema_of_keys(*object);
        }
    }
    return schema;
}

std::string reference_of(const ObjectText& object) {
    std::string table = "| key | type, unit | default | meaning |\n|---|---|---|---|\n";
    for (const KeyText& key : object.keys) {
        table +=
            fmt::format("| `{}` | {} | {} | {} |\n", key.key, type_of(key), key.usual, key.meaning);
    }
    return table;
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
