// DistributedDataParallel's arguments, and TrainingArguments of transformers.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "import/settings/reading.h"

namespace bucketwise {
namespace {

constexpr double default_mib = 25;

double mib_at(const JsonPlace& place) {
    const std::optional<double> mib = number_at(place);
    if (!mib || *mib <= 0) {
        place.fail("a number of MiB above 0");
    }
    return *mib;
}

// A script may compute the cap, or take it from a command line.
std::optional<double> cap_at(const JsonPlace& place, std::string_view key,
                             TypedSettings& settings) {
    const Json& value = *place.value;
    if (value.is_object() && value.contains("expression")) {
        const std::string from = value["expression"];
        if (!value.contains("default")) {
            settings.left_out.push_back(fmt::format(
                "{} comes from {}, which the file does not set: give it with --value", key, from));
            return std::nullopt;
        }
        settings.notes.push_back(fmt::format(
            "{} comes from {}: the file's default is read, --value gives another", key, from));
    }
    return value.is_null() || (value.is_object() && value["default"].is_null())
               ? std::nullopt
               : std::optional(mib_at(place));
}

void read_list(const JsonPlace& arguments, TypedSettings& settings) {
    const JsonPlace list = child(arguments, "bucket_cap_mb_list");
    if (list.value->is_object()) {
        settings.left_out.emplace_back("bucket_cap_mb_list is no list of numbers");
        return;
    }
    for (const Json& cap : *list.value) {
        settings.list.push_back(mib_at({&cap, list.file, list.pointer}));
    }
    if (settings.value && !settings.list.empty()) {
        arguments.fail("bucket_cap_mb or bucket_cap_mb_list", "both");
    }
}

// Empty, and said so, where a script leaves it open.
std::optional<bool> argument_at(const JsonPlace& arguments, std::string_view key,
                                TypedSettings& settings) {
    const JsonPlace place = child(arguments, key);
    if (place.value->is_object() && !place.value->contains("default")) {
        settings.left_out.push_back(fmt::format("{} comes from {}", key, text_at(place)));
        return std::nullopt;
    }
    return flag_at(place);
}

bool is_asked(const JsonPlace& place) {
    const Json& value = *place.value;
    if (value.is_string()) {
        return !value.get_ref<const std::string&>().empty();
    }
    return value.is_boolean() ? value.get<bool>() : !value.empty();  // null is empty
}

TypedSettings with_deepspeed(const JsonPlace& place) {
    if (place.value->is_object() && place.value->contains("zero_optimization")) {
        return read_deepspeed(place);
    }
    return deepspeed_elsewhere(SettingPlace::transformers, text_at(place));
}

}  // namespace

TypedSettings read_ddp(const JsonPlace& arguments, SettingPlace place,
                       std::optional<bool> compiled) {
    const bool trainer = place == SettingPlace::transformers || place == SettingPlace::axolotl;
    const auto name = [&](const char* key) { return (trainer ? "ddp_" : "") + std::string(key); };
    TypedSettings settings;
    settings.place = place;
    settings.compiled = compiled;
    const std::string key = name("bucket_cap_mb");
    settings.value = cap_at(child(arguments, key), key, settings);
    bool dropped = false;
    if (settings.value) {
        suspect_unit(*settings.value, key, false, settings);
        dropped = (trainer || place == SettingPlace::accelerate) && *settings.value == default_mib;
    }
    const bool whole = !settings.value || *settings.value == std::floor(*settings.value);
    if (dropped) {
        settings.value.reset();
    }
    if (has(arguments, "bucket_cap_mb_list")) {
        read_list(arguments, settings);
    }
    settings.views = argument_at(arguments, "gradient_as_bucket_view", settings);
    settings.static_graph = argument_at(arguments, name("static_graph"), settings);
    settings.find_unused_parameters =
        argument_at(arguments, name("find_unused_parameters"), settings);
    const bool searches = trainer && !settings.find_unused_parameters &&
                          flag_at(child(arguments, "gradient_checkpointing")) != true;
    if (trainer && !settings.find_unused_parameters) {
        settings.find_unused_parameters = searches;
    }
    const double largest = settings.list.empty() ? settings.value.value_or(default_mib)
                                                 : std::ranges::max(settings.list);
    add_remarks(
        {{dropped,
          "25 is dropped as the default: the first bucket stays at 1 MiB; 25.0000001 has the same "
          "number of bytes, and is not dropped"},
         {trainer && !whole, "whole numbers are expected"},
         {searches,
          "ddp_find_unused_parameters is not set, and True unless gradients are checkpointed: "
          "buckets keep the order of parameters, and a map of unused ones is reduced in every "
          "step"},
         {largest < 1 && settings.compiled == true,
          "under torch.compile a cap below 1 MiB is refused (first_bucket_cap <= "
          "bucket_bytes_cap)"}},
        settings.suspicious);
    add_remarks({{settings.static_graph == true,
                  "static_graph: buckets are rebuilt in the order of readiness, and no map of "
                  "unused parameters is reduced"}},
                settings.notes);
    return settings;
}

TypedSettings read_training_arguments(const JsonPlace& arguments, SettingPlace place,
                                      std::optional<bool> compiled) {
    const JsonPlace deepspeed = child(arguments, "deepspeed");
    TypedSettings settings;
    if (is_asked(deepspeed)) {
        settings = with_deepspeed(deepspeed);
    } else if (is_asked(child(arguments, "fsdp"))) {
        const JsonPlace config = child(arguments, "fsdp_config");
        const double version =
            number_at(child(config, "version"))
                .value_or(number_at(child(config, "fsdp_version"))
                              .value_or(number_at(child(arguments, "fsdp_version")).value_or(1)));
        settings = read_fsdp(arguments, place, version == 2);
    } else {
        const JsonPlace asked = child(arguments, "torch_compile");
        settings = read_ddp(arguments, place, compiled ? compiled : flag_at(asked));
    }
    if (!settings.accumulation) {
        settings.accumulation = count_at(child(arguments, "gradient_accumulation_steps"));
    }
    read_checkpointing(child(arguments, "gradient_checkpointing"), settings);
    if (settings.recompute) {
        settings.recompute->reentrant =
            is_on(child(child(arguments, "gradient_checkpointing_kwargs"), "use_reentrant"));
    }
    return settings;
}

}  // namespace bucketwise
