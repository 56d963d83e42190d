// The keys of a JSON object, each said once: a table of rows gives reader, writer, JSON Schema and
// the reference in Markdown (the last two are files, which tests/schema_file.h writes).
//
//     const JsonTable<Straggler> table{"straggler", "A slow rank", {
//         {"rank", target(&Straggler::rank, as::integer(0, 9)), "required", "its number"}}};
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/base/names.h"
#include "sim/base/transformed.h"

namespace bucketwise {

struct Caveat;
struct ObjectText;

// Calls use(its place) where the key is there.
template <typename Use>
void use_present(const JsonObject& object, std::string_view key, const Use& use) {
    if (const std::optional<JsonPlace> found = object.find(key)) {
        use(*found);
    }
}

// A value as the schema and the reference describe it.
struct JsonDescription {
    Json schema;
    std::string called;                           // its type, in the reference
    std::vector<const ObjectText*> objects = {};  // tables that it leads to
};

struct KeyText {
    std::string_view key;
    JsonDescription value;
    std::string_view usual;    // the default, or "required"
    std::string_view meaning;  // Markdown

    [[nodiscard]] bool required() const { return usual == "required"; }
};

// Two keys that exclude each other, or one that needs another.
struct JsonRule {
    std::string_view key;
    std::string_view other;
    bool excludes = false;
};
constexpr JsonRule exclusive(std::string_view a, std::string_view b) {
    return {a, b, true};
}
constexpr JsonRule needs(std::string_view key, std::string_view needed) {
    return {key, needed, false};
}

struct ObjectText {
    std::string_view name;  // in the reference
    std::string_view meaning;
    std::vector<KeyText> keys;
    std::vector<JsonRule> rules = {};
    std::vector<Json> conditions = {};  // further schemas that all hold
};
// As a schema refers to it, of a document that leads to it.
Json reference_to(const ObjectText& object);

// A JSON value that is read and written as a Value.
template <typename Value>
struct JsonType : JsonDescription {
    std::function<Value(const JsonPlace&)> read;
    std::function<Json(const Value&)> write = {};
};

namespace as {

JsonType<double> number(const NumberRange& range);
JsonType<std::int64_t> integer(std::int64_t lowest, std::int64_t highest);
JsonType<bool> boolean();
JsonType<std::string> text(std::size_t longest = 200);
JsonType<Duration> milliseconds();
JsonType<Duration> microseconds(double highest = 1e6);
JsonType<BytesPerSecond> gb_per_s();
JsonType<Bytes> bytes();
JsonType<Bytes> cap_mib();

// The key `caveats` of scenarios and links.
JsonType<std::vector<Caveat>> caveats();

// A description of something that is neither read nor written by its type.
Json names_schema(const std::vector<std::string_view>& names);
std::string names_text(const std::vector<std::string_view>& names);

template <typename Choices>
auto choice(const Choices& choices) {
    using Value = typename Choices::value_type;
    const auto known = transformed(choices, [](Value value) { return name_of(value); });
    return JsonType<Value>{
        {names_schema(known), names_text(known)},
        [choices](const JsonPlace& place) { return read_choice(place, choices); },
        [](const Value& value) { return Json(name_of(value)); }};
}
template <Named Value>
JsonType<Value> one_of() {
    return choice(every<Value>);
}

template <typename Value>
JsonType<std::vector<Value>> list(const JsonType<Value>& element, std::size_t most) {
    return {
        {{{"type", "array"}, {"minItems", 1}, {"maxItems", most}, {"items", element.schema}},
         "list of " + element.called,
         element.objects},
        [=](const JsonPlace& place) { return transformed(read_array(place, most), element.read); },
        [=](const std::vector<Value>& values) { return json_list(values, element.write); }};
}

}  // namespace as

// Where a key's value goes in its owner. Without `read` the key is only described, and its reader
// stands elsewhere.
template <typename Owner>
struct KeyUse : JsonDescription {
    std::function<void(const JsonPlace&, Owner&)> read = {};
    // Returns none for the value of an unchanged Owner, unless it is `always` written.
    std::function<std::optional<Json>(const Owner&, bool always)> write = {};

    KeyUse(JsonDescription described) : JsonDescription(std::move(described)) {}
};

// A key that is read. `target` may be a member, or return a reference to a part of the owner.
template <typename Owner, typename Target, typename Value>
KeyUse<Owner> target_in(Target target, const JsonType<Value>& type) {
    KeyUse<Owner> use{type};
    use.read = [target, read = type.read](const JsonPlace& place, Owner& owner) {
        std::invoke(target, owner) = read(place);
    };
    return use;
}
template <typename Owner, typename Field, typename Value>
KeyUse<Owner> target(Field Owner::*member, const JsonType<Value>& type) {
    return target_in<Owner>(member, type);
}

// A key that is read and written.
template <typename Owner, typename Target, typename Value>
KeyUse<Owner> field_in(Target target, const JsonType<Value>& type) {
    KeyUse<Owner> use = target_in<Owner>(target, type);
    use.write = [target, write = type.write](const Owner& owner,
                                             bool always) -> std::optional<Json> {
        const Owner unchanged{};
        const auto& value = std::invoke(target, owner);
        if (!always && value == std::invoke(target, unchanged)) {
            return std::nullopt;
        }
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<Value>>) {
            return value ? std::optional(write(*value)) : std::nullopt;
        } else {
            return write(value);
        }
    };
    return use;
}
template <typename Owner, typename Field, typename Value>
KeyUse<Owner> field(Field Owner::*member, const JsonType<Value>& type) {
    return field_in<Owner>(member, type);
}

template <typename Owner>
struct JsonKey {
    std::string_view key;
    KeyUse<Owner> use;
    std::string_view usual;
    std::string_view meaning;
    bool written = false;  // always, as required keys are
};

template <typename Owner>
std::vector<JsonKey<Owner>> joined(std::vector<JsonKey<Owner>> first,
                                   const std::vector<JsonKey<Owner>>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

template <typename Owner>
class JsonTable {
  public:
    JsonTable(std::string_view name, std::string_view meaning, std::vector<JsonKey<Owner>> keys,
              std::vector<JsonRule> rules = {}, std::vector<Json> conditions = {})
        : text_{name, meaning, {}, std::move(rules), std::move(conditions)},
          keys_(std::move(keys)) {
        for (const JsonKey<Owner>& row : keys_) {
            text_.keys.push_back({row.key, row.use, row.usual, row.meaning});
            names_.push_back(row.key);
        }
    }

    [[nodiscard]] const ObjectText& text() const { return text_; }

    // Throws InputError where a key is unknown or a rule broken.
    [[nodiscard]] JsonObject open(const JsonPlace& place) const {
        JsonObject object(place, names_);
        for (const JsonRule& rule : text_.rules) {
            if (rule.excludes) {
                object.exclusive(rule.key, rule.other);
            } else if (object.has(rule.key)) {
                static_cast<void>(object.at(rule.other));
            }
        }
        return object;
    }

    // Reads the keys in the order of the table. Throws InputError.
    void read(const JsonObject& object, Owner& owner) const {
        for (const JsonKey<Owner>& row : keys_) {
            const std::optional<JsonPlace> found =
                row.usual == "required" ? object.at(row.key) : object.find(row.key);
            if (found && row.use.read) {
                row.use.read(*found, owner);
            }
        }
    }
    [[nodiscard]] Owner read(const JsonPlace& place) const {
        Owner owner{};
        read(open(place), owner);
        return owner;
    }

    [[nodiscard]] Json write(const Owner& owner) const {
        Json json = Json::object();
        for (const JsonKey<Owner>& row : keys_) {
            if (!row.use.write) {
                continue;
            }
            add_optional(json, row.key,
                         row.use.write(owner, row.written || row.usual == "required"));
        }
        return json;
    }

    // An object with these keys, as a value of another.
    [[nodiscard]] JsonType<Owner> type() const {
        return {{reference_to(text_), "object", {&text_}},
                [this](const JsonPlace& place) { return read(place); },
                [this](const Owner& owner) { return write(owner); }};
    }

  private:
    ObjectText text_;
    std::vector<JsonKey<Owner>> keys_;
    std::vector<std::string_view> names_;
};

}  // namespace bucketwise
