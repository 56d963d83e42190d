#include "import/settings/settings_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

constexpr double default_mib = 25;

// A sentence about settings for which `holds`.
struct Suspicion {
    bool holds;
    const char* text;
};

template <std::size_t count>
void suspect(const Suspicion (&suspicions)[count], TypedSettings& settings) {
    for (const auto& [holds, text] : suspicions) {
        if (holds) {
            settings.suspicious.emplace_back(text);
        }
    }
}

// Sizes that nobody wants were typed in another unit.
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

// A switch of a framework, and the member that it sets.
struct Switch {
    std::string_view key;
    bool FrameworkUse::*member;
    bool value;  // as typed on a command line, or the default of a JSON key
};

// --- JSON and Python's arguments ---

// The value at a key; null where it is missing.
JsonPlace child(const JsonPlace& place, const char* key) {
    static const Json nothing;
    const auto found = place.value->find(key);
    return {found == place.value->end() ? &nothing : &*found, place.file,
            place.pointer + "/" + key};
}

std::optional<bool> boolean_at(const JsonPlace& place) {
    if (!place.value->is_null() && !place.value->is_boolean()) {
        place.fail("true or false");
    }
    return place.value->is_null() ? std::nullopt : std::optional(place.value->get<bool>());
}

double mib_at(const JsonPlace& place) {
    if (!place.value->is_number() || place.value->get<double>() <= 0) {
        place.fail("a number of MiB above 0");
    }
    return place.value->get<double>();
}

// "auto" and the like are the trainer's.
std::optional<std::int64_t> accumulation_at(const JsonPlace& root) {
    const Json& value = *child(root, "gradient_accumulation_steps").value;
    return value.is_number_integer() && value.get<std::int64_t>() > 0
               ? std::optional(value.get<std::int64_t>())
               : std::nullopt;
}

// --- DeepSpeed ---

constexpr std::array deepspeed_switches{
    Switch{"overlap_comm", &FrameworkUse::overlaps, false},
    Switch{"reduce_scatter", &FrameworkUse::reduce_scatter, true},
    Switch{"contiguous_gradients", &FrameworkUse::contiguous_gradients, true}};

void read_bucket_size(const JsonPlace& size, TypedSettings& settings) {
    if (*size.value == "auto") {
        settings.suspicious.emplace_back(
            "reduce_bucket_size \"auto\": transformers sets it to the square of the model's "
            "hidden size, which is not simulated; the default of DeepSpeed is used instead");
        return;
    }
    if (!size.value->is_number() || size.value->get<double>() < 0 ||
        size.value->get<double>() > 9e15) {
        size.fail("a number of elements");
    }
    settings.value = std::floor(size.value->get<double>());
    suspect_unit(*settings.value, "reduce_bucket_size", true, settings);
}

std::optional<DType> reduced_type(const JsonPlace& place) {
    if (place.value->is_null()) {
        return std::nullopt;
    }
    for (const auto& [name, dtype] :
         {std::pair("fp16", DType::float16), std::pair("bfp16", DType::bfloat16),
          std::pair("bf16", DType::bfloat16), std::pair("bfloat16", DType::bfloat16),
          std::pair("fp32", DType::float32)}) {
        if (*place.value == name) {
            return dtype;
        }
    }
    place.fail("fp32, fp16 or bf16");
}

// Stage 1 of bf16 with fp32 accumulation.
bool uses_bf16_optimizer(const Json& root) {
    const Json types = root.value("data_types", Json());
    const Json half = root.value("bf16", Json());
    return types.is_object() && types.value("grad_accum_dtype", Json()) == "fp32" &&
           half.is_object() && half.value("enabled", Json()) == true;
}

TypedSettings read_deepspeed(const JsonPlace& root) {
    const JsonPlace zero = child(root, "zero_optimization");
    if (!zero.value->is_object()) {
        zero.fail("an object");
    }
    const JsonPlace stage = child(zero, "stage");
    if (!stage.value->is_null() && !stage.value->is_number_integer()) {
        stage.fail("a whole number");
    }
    if (*stage.value != 1 && *stage.value != 2) {
        stage.fail("stage 1 or 2, whose buckets are known");
    }
    const bool first = *stage.value == 1;
    TypedSettings settings;
    settings.place = first ? SettingPlace::deepspeed_zero1 : SettingPlace::deepspeed_zero2;
    FrameworkUse& use = settings.use;
    use.framework = first ? Framework::deepspeed_zero1 : Framework::deepspeed_zero2;
    for (const auto& [key, member, otherwise] : deepspeed_switches) {
        use.*member = boolean_at(child(zero, key.data())).value_or(otherwise);
    }
    settings.accumulation = accumulation_at(root);
    if (zero.value->contains("reduce_bucket_size")) {
        read_bucket_size(child(zero, "reduce_bucket_size"), settings);
    }
    use.reduced_as = reduced_type(child(root, "communication_data_type"));
    const bool all_reduces =
        boolean_at(child(zero, "use_multi_rank_bucket_allreduce")).value_or(true);
    suspect({{!use.overlaps,
              "overlap_comm is off, the default of stages 1 and 2: computing hides no "
              "communication"},
             {zero.value->contains("allgather_bucket_size"),
              "allgather_bucket_size counts only where PyTorch has no all_gather_into_tensor: "
              "from 1.13 on all parameters are gathered in one"},
             {!use.contiguous_gradients,
              "without contiguous_gradients the host waits for the device whenever a bucket goes "
              "out, which is not simulated: the step is longer"},
             {!all_reduces,
              "without use_multi_rank_bucket_allreduce each bucket is reduced rank by rank, which "
              "is not simulated: all-reduces are"},
             {all_reduces && use.reduce_scatter && zero.value->contains("reduce_scatter"),
              "reduce_scatter does not scatter: buckets are all-reduced, unless "
              "use_multi_rank_bucket_allreduce is off"},
             {first && uses_bf16_optimizer(*root.value),
              "bf16 with gradients accumulated in fp32 in stage 1 is another optimizer "
              "(BF16_Optimizer): it reduces all gradients at once, after backward, and "
              "reduce_bucket_size and overlap_comm do nothing"}},
            settings);
    return settings;
}

// --- Megatron-LM ---

constexpr std::array megatron_switches{
    Switch{"--overlap-grad-reduce", &FrameworkUse::overlaps, true},
    Switch{"--overlap-param-gather", &FrameworkUse::gathers_in_forward, true},
    Switch{"--ddp-average-in-collective", &FrameworkUse::averages_in_collective, true},
    Switch{"--grad-reduce-in-bf16", &FrameworkUse::reduces_in_bfloat16, true},
    Switch{"--no-check-for-nan-in-loss-and-grad", &FrameworkUse::checks_gradients, false},
    Switch{"--ddp-pad-buckets-for-high-nccl-busbw", &FrameworkUse::pads_for_bandwidth, true}};

using Words = std::vector<std::string>;

// The words of a command line, also of one in a shell script.
Words words_of(const std::string& text) {
    Words words;
    const std::string between = " \t\r\n\f\v\\\"'=()";
    for (std::size_t begin = text.find_first_not_of(between); begin < text.size();) {
        const std::size_t end = std::min(text.find_first_of(between, begin), text.size());
        words.push_back(text.substr(begin, end - begin));
        begin = text.find_first_not_of(between, end);
    }
    return words;
}

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

TypedSettings read_megatron(const Words& words, const std::string& file) {
    const auto has = [&](std::string_view flag) {
        return std::ranges::find(words, flag) != words.end();
    };
    const auto value_of = [&](std::string_view flag) -> std::optional<double> {
        const auto at = std::ranges::find(words, flag);
        if (at == words.end()) {
            return std::nullopt;
        }
        const auto value = at + 1 == words.end() ? std::nullopt : number_in(*(at + 1));
        if (!value || *value < 1 || *value > 9e15) {
            throw InputError(file, "", fmt::format("a whole number after {}", flag),
                             at + 1 == words.end() ? "nothing" : "\"" + *(at + 1) + "\"");
        }
        return value;
    };
    TypedSettings settings;
    const bool distributed = has("--use-distributed-optimizer");
    settings.place =
        distributed ? SettingPlace::megatron_distributed_optimizer : SettingPlace::megatron_lm;
    FrameworkUse& use = settings.use;
    use.framework = *framework_at(settings.place);
    for (const auto& [flag, member, value] : megatron_switches) {
        use.*member = has(flag) == value;
    }
    settings.value = value_of("--ddp-bucket-size");
    if (settings.value) {
        suspect_unit(*settings.value, "--ddp-bucket-size", true, settings);
    }
    suspect({{value_of("--ddp-num-buckets").has_value(),
              "--ddp-num-buckets divides the parameters by it for a bucket's size, which is not "
              "simulated: say --ddp-bucket-size"},
             {!use.overlaps && settings.value,
              "without --overlap-grad-reduce --ddp-bucket-size does nothing: all gradients of a "
              "dtype are reduced at once, after backward"},
             {!use.overlaps && !settings.value,
              "without --overlap-grad-reduce all gradients of a dtype are reduced at once, after "
              "backward"},
             {distributed && use.overlaps && !use.gathers_in_forward,
              "without --overlap-param-gather nothing computes while parameters are gathered"},
             {has("--bf16") && !use.reduces_in_bfloat16,
              "gradients travel as float32, twice the bytes, unless --grad-reduce-in-bf16"},
             {use.checks_gradients,
              "the host waits for each bucket's norm before it goes out, unless "
              "--no-check-for-nan-in-loss-and-grad"}},
            settings);
    return settings;
}

// --- PyTorch and its wrappers ---

// `arguments` has the keys of a call, or of TrainingArguments as JSON.
TypedSettings read_ddp(const JsonPlace& arguments, SettingPlace place,
                       std::optional<bool> compiled) {
    const bool trainer = place == SettingPlace::transformers;
    TypedSettings settings;
    settings.place = place;
    settings.compiled = compiled;
    const char* const key = trainer ? "ddp_bucket_cap_mb" : "bucket_cap_mb";
    bool dropped = false;
    if (const JsonPlace cap = child(arguments, key); !cap.value->is_null()) {
        settings.value = mib_at(cap);
        suspect_unit(*settings.value, key, false, settings);
        dropped = (trainer || place == SettingPlace::accelerate) && *settings.value == default_mib;
    }
    const bool whole = !settings.value || *settings.value == std::floor(*settings.value);
    if (dropped) {
        settings.value.reset();
    }
    if (const JsonPlace list = child(arguments, "bucket_cap_mb_list"); !list.value->is_null()) {
        for (const Json& cap : *list.value) {
            settings.list.push_back(mib_at({&cap, list.file, list.pointer}));
        }
        if (settings.value && !settings.list.empty()) {
            arguments.fail("bucket_cap_mb or bucket_cap_mb_list", "both");
        }
    }
    settings.views = boolean_at(child(arguments, "gradient_as_bucket_view"));
    settings.find_unused_parameters = boolean_at(
        child(arguments, trainer ? "ddp_find_unused_parameters" : "find_unused_parameters"));
    const bool searches = trainer && !settings.find_unused_parameters &&
                          *child(arguments, "gradient_checkpointing").value != true;
    if (trainer && !settings.find_unused_parameters) {
        settings.find_unused_parameters = searches;
    }
    const double largest = settings.list.empty() ? settings.value.value_or(default_mib)
                                                 : std::ranges::max(settings.list);
    suspect({{dropped,
              "25 is dropped as the default: the first bucket stays at 1 MiB; 25.0000001 has the "
              "same number of bytes, and is not dropped"},
             {trainer && !whole, "whole numbers are expected"},
             {searches,
              "ddp_find_unused_parameters is not set, and True unless gradients are "
              "checkpointed: buckets keep the order of parameters, and a map of unused ones is "
              "reduced in every step"},
             {largest < 1 && settings.compiled == true,
              "under torch.compile a cap below 1 MiB is refused (first_bucket_cap <= "
              "bucket_bytes_cap)"}},
            settings);
    return settings;
}

// Wrappers before the calls that they make.
constexpr std::array<std::pair<std::string_view, SettingPlace>, 7> calls{
    {{"DDPStrategy(", SettingPlace::lightning},
     {"DistributedDataParallelKwargs(", SettingPlace::accelerate},
     {"TrainingArguments(", SettingPlace::transformers},
     {"MMDistributedDataParallel", SettingPlace::mmengine},
     {"create_ddp_model(", SettingPlace::detectron2},
     {"parallel_strategy_kwargs", SettingPlace::ray_train},
     {"DistributedDataParallel(", SettingPlace::pytorch_ddp}}};

// From the call's name to its closing bracket.
std::string_view arguments_at(std::string_view text, std::size_t begin) {
    constexpr std::string_view opening = "([{";
    constexpr std::string_view closing = ")]}";
    std::size_t depth = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
        depth += opening.find(text[i]) != std::string_view::npos ? 1U : 0U;
        if (closing.find(text[i]) != std::string_view::npos && depth-- <= 1) {
            return text.substr(begin, i + 1 - begin);
        }
    }
    return text.substr(begin);
}

// The text after a keyword and = or :, up to the argument's end; nothing: it is not there.
std::optional<std::string> argument_of(std::string_view arguments, std::string_view key) {
    const auto is_part = [&](std::size_t i) {
        const auto c = static_cast<unsigned char>(i < arguments.size() ? arguments[i] : ' ');
        return std::isalnum(c) != 0 || c == '_';
    };
    for (std::size_t at = arguments.find(key); at != std::string_view::npos;
         at = arguments.find(key, at + 1)) {
        const std::size_t after = at + key.size();
        const std::size_t sign = arguments.find_first_not_of("\"' \t\r\n", after);
        if ((at > 0 && is_part(at - 1)) || is_part(after) || sign == std::string_view::npos ||
            (arguments[sign] != '=' && arguments[sign] != ':')) {
            continue;
        }
        std::string value;
        std::size_t depth = 0;
        for (std::size_t i = sign + 1; i < arguments.size(); ++i) {
            const char c = arguments[i];
            if (depth == 0 && (c == ',' || c == ')' || c == '}')) {
                break;
            }
            depth += c == '[' || c == '(' ? 1 : 0;
            depth -= (c == ']' || c == ')') && depth > 0 ? 1 : 0;
            if (std::isspace(static_cast<unsigned char>(c)) == 0) {
                value += c;
            }
        }
        return value;
    }
    return std::nullopt;
}

// A number or a text.
Json value_in(const std::string& text) {
    constexpr std::size_t longest = 40;
    const auto number = number_in(text);
    return number ? Json(*number) : Json(text.substr(0, longest));
}

TypedSettings read_call(std::string_view name, SettingPlace place, std::string_view text,
                        std::size_t at, const std::string& file) {
    const std::string_view arguments = arguments_at(text, at);
    Json values = Json::object();
    for (const char* key : {"bucket_cap_mb", "ddp_bucket_cap_mb"}) {
        if (const auto cap = argument_of(arguments, key); cap && *cap != "None") {
            values[key] = value_in(*cap);
        }
    }
    if (auto list = argument_of(arguments, "bucket_cap_mb_list"); list && *list != "None") {
        std::erase_if(*list, [](char c) { return c == '[' || c == ']'; });
        values["bucket_cap_mb_list"] = Json::array();
        for (std::size_t begin = 0; begin < list->size();) {
            const std::size_t end = std::min(list->find(',', begin), list->size());
            values["bucket_cap_mb_list"].push_back(value_in(list->substr(begin, end - begin)));
            begin = end + 1;
        }
    }
    for (const char* key : {"gradient_as_bucket_view", "find_unused_parameters",
                            "ddp_find_unused_parameters", "gradient_checkpointing"}) {
        const auto flag = argument_of(arguments, key);
        if (flag == "True" || flag == "False") {
            values[key] = flag == "True";
        }
    }
    const bool compiled = text.find("torch.compile(") != std::string_view::npos;
    return read_ddp({&values, file, std::string(name.substr(0, name.find('(')))}, place,
                    compiled ? std::optional(true) : std::nullopt);
}

}  // namespace

TypedSettings read_typed_settings(const std::string& text, const std::string& file) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] == '{') {
        const Json document = parse_json(text, file);
        const JsonPlace root{&document, file, ""};
        if (document.contains("zero_optimization")) {
            return read_deepspeed(root);
        }
        for (const char* key : {"ddp_bucket_cap_mb", "ddp_find_unused_parameters", "output_dir",
                                "per_device_train_batch_size", "gradient_checkpointing"}) {
            if (document.contains(key)) {
                const Json& compiled = *child(root, "torch_compile").value;
                TypedSettings settings =
                    read_ddp(root, SettingPlace::transformers,
                             compiled.is_null() ? std::nullopt : std::optional(compiled == true));
                settings.accumulation = accumulation_at(root);
                return settings;
            }
        }
        throw InputError(file, "",
                         "zero_optimization, as DeepSpeed has it, or TrainingArguments of "
                         "transformers",
                         "neither");
    }
    for (const auto& [name, place] : calls) {
        if (const std::size_t at = text.find(name); at != std::string::npos) {
            return read_call(name, place, text, at, file);
        }
    }
    const Words words = words_of(text);
    for (const char* flag :
         {"--ddp-bucket-size", "--ddp-num-buckets", "--overlap-grad-reduce",
          "--use-distributed-optimizer", "--tensor-model-parallel-size", "--micro-batch-size"}) {
        if (std::ranges::find(words, flag) != words.end()) {
            return read_megatron(words, file);
        }
    }
    throw InputError(file, "",
                     "a DeepSpeed JSON, TrainingArguments as JSON, Megatron-LM's arguments, or a "
                     "script that calls DDPStrategy, DistributedDataParallelKwargs, "
                     "TrainingArguments or DistributedDataParallel",
                     "none of them");
}

}  // namespace bucketwise
