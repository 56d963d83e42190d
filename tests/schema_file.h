// The schemas in scenarios/ and the tables in its README, which tables of keys give.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/base/json_table.h"

namespace bucketwise {

// By the end of a key that holds a quantity.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 6> units{
    {{"_us", "µs"},
     {"_ms", "ms"},
     {"_gb_per_s", "GB/s"},
     {"_mib", "MiB"},
     {"_gib", "GiB"},
     {"bytes", "bytes"}}};

inline std::string type_of(const KeyText& key) {
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
inline std::string plain(std::string_view markdown) {
    std::string text(markdown);
    if (text.find("](") != std::string::npos) {  // few have links, and a regex is slow
        static const std::regex links("\\[([^\\]]*)\\]\\([^)]*\\)");
        text = std::regex_replace(text, links, "$1");
    }
    std::erase(text, '`');
    return text;
}

inline std::string description_of(const KeyText& key) {
    const bool has_default = !key.required() && !key.usual.empty() && key.usual != "none";
    return plain(key.meaning) + (has_default ? "; default " + plain(key.usual) : "");
}

inline Json schema_of_keys(const ObjectText& object) {
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

inline void add_objects(const ObjectText& object,
                        std::map<std::string_view, const ObjectText*>& objects) {
    if (!objects.emplace(object.name, &object).second) {
        return;
    }
    for (const KeyText& key : object.keys) {
        for (const ObjectText* below : key.value.objects) {
            add_objects(*below, objects);
        }
    }
}

// The object and all tables that it leads to, by name.
inline std::map<std::string_view, const ObjectText*> objects_of(const ObjectText& root) {
    std::map<std::string_view, const ObjectText*> objects;
    add_objects(root, objects);
    return objects;
}

// A whole document's schema: every table below the root once, under `$defs`.
inline Json schema_of(const ObjectText& root) {
    Json schema = schema_of_keys(root);
    for (const auto& [name, object] : objects_of(root)) {
        if (object != &root) {
            const std::string reference = reference_to(*object)["$ref"];
            schema["$defs"][reference.substr(reference.rfind('/') + 1)] = schema_of_keys(*object);
        }
    }
    return schema;
}

// A Markdown table.
inline std::string reference_of(const ObjectText& object) {
    std::string table = "| key | type, unit | default | meaning |\n|---|---|---|---|\n";
    for (const KeyText& key : object.keys) {
        table +=
            fmt::format("| `{}` | {} | {} | {} |\n", key.key, type_of(key), key.usual, key.meaning);
    }
    return table;
}

// The text of a file in scenarios/.
inline std::string scenario_file_text(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(std::filesystem::path(BUCKETWISE_SCENARIO_DIR) / name).rdbuf();
    return text.str();
}

inline void write_scenario_file(const std::string& name, const std::string& text) {
    std::ofstream(std::filesystem::path(BUCKETWISE_SCENARIO_DIR) / name) << text;
}

inline std::string schema_text(Json schema, const std::string& title) {
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    schema["title"] = title;
    return schema.dump(1) + "\n";
}

}  // namespace bucketwise
