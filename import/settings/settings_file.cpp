#include "import/settings/settings_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

// Nobody has buckets of so few elements, of so many MiB, or of as few: another unit was meant.
constexpr double fewest_elements = 100'000;
constexpr double most_mib = 65'536;
constexpr double default_mib = 25;

std::string number_text(double value) {
    return value == std::floor(value) && std::abs(value) < 1e15
               ? std::to_string(static_cast<std::int64_t>(value))
               : fmt::format("{}", value);
}

void suspect_elements(double value, std::string_view key, TypedSettings& settings) {
    if (value < fewest_elements) {
        settings.suspicious.push_back(fmt::format(
            "{} counts elements, not MiB or bytes: {} of them are {:.3g} MiB of float32", key,
            number_text(value), value * 4 / static_cast<double>(bytes_per_mib)));
    }
}

void suspect_mib(double value, std::string_view key, TypedSettings& settings) {
    if (value > most_mib) {
        settings.suspicious.push_back(
            fmt::format("{} counts MiB, not bytes: {} of them hold any model in one bucket", key,
                        number_text(value)));
    }
}

void suspect_dropped(TypedSettings& settings) {
    settings.suspicious.emplace_back(
        "25 is dropped as the default: the first bucket stays at 1 MiB; 25.0000001 is as many "
        "bytes, and is not");
}

void suspect_search_for_unused(TypedSettings& settings) {
    settings.suspicious.emplace_back(
        "ddp_find_unused_parameters is not set, and True unless gradients are checkpointed: "
        "buckets keep the order of parameters, and a map of unused ones is reduced in every step");
}

void suspect_small_when_compiled(TypedSettings& settings) {
    settings.suspicious.emplace_back(
        "under torch.compile a cap below 1 MiB is refused (first_bucket_cap <= bucket_bytes_cap)");
}

// What is there, and where; its value is null where it is not.
JsonPlace child(const JsonPlace& place, const char* key) {
    static const Json nothing;
    const auto found = place.value->find(key);
    return {found == place.value->end() ? &nothing : &*found, place.file,
            place.pointer + "/" + key};
}

// --- DeepSpeed ---

class DeepSpeedReader {
  public:
    DeepSpeedReader(const JsonPlace& root) : root_(root) {}

    TypedSettings read() {
        const JsonPlace zero = child(root_, "zero_optimization");
        if (!zero.value->is_object()) {
            zero.fail("an object");
        }
        const std::int64_t stage = integer(zero, "stage", 0);
        if (stage != 1 && stage != 2) {
            child(zero, "stage").fail("stage 1 or 2, whose buckets are known");
        }
        settings_.place =
            stage == 1 ? SettingPlace::deepspeed_zero1 : SettingPlace::deepspeed_zero2;
        FrameworkUse& use = settings_.use;
        use.framework = stage == 1 ? Framework::deepspeed_zero1 : Framework::deepspeed_zero2;
        use.overlaps = boolean(zero, "overlap_comm", false);
        use.reduce_scatter = boolean(zero, "reduce_scatter", true);
        use.contiguous_gradients = boolean(zero, "contiguous_gradients", true);
        settings_.accumulation = accumulation();
        bucket_size(zero);
        read_dtype();
        suspect(zero, stage);
        return settings_;
    }

  private:
    static const Json* find(const JsonPlace& place, const char* key) {
        const auto found = place.value->find(key);
        return found == place.value->end() ? nullptr : &*found;
    }
    static std::int64_t integer(const JsonPlace& place, const char* key, std::int64_t otherwise) {
        const Json* const found = find(place, key);
        if (found == nullptr) {
            return otherwise;
        }
        if (!found->is_number_integer()) {
            child(place, key).fail("a whole number");
        }
        return found->get<std::int64_t>();
    }
    static bool boolean(const JsonPlace& place, const char* key, bool otherwise) {
        const Json* const found = find(place, key);
        if (found == nullptr || found->is_null()) {
            return otherwise;
        }
        if (!found->is_boolean()) {
            child(place, key).fail("true or false");
        }
        return found->get<bool>();
    }

    std::optional<std::int64_t> accumulation() const {
        const Json* const found = find(root_, "gradient_accumulation_steps");
        if (found == nullptr || !found->is_number_integer() || found->get<std::int64_t>() < 1) {
            return std::nullopt;  // "auto": the trainer's
        }
        return found->get<std::int64_t>();
    }

    void bucket_size(const JsonPlace& zero) {
        const Json* const found = find(zero, "reduce_bucket_size");
        if (found == nullptr) {
            return;
        }
        if (*found == "auto") {
            settings_.suspicious.emplace_back(
                "reduce_bucket_size \"auto\": transformers sets it to the square of the model's "
                "hidden size, which is not simulated; what follows is of DeepSpeed's default");
            return;
        }
        if (!found->is_number() || found->get<double>() < 0 || found->get<double>() > 9e15) {
            child(zero, "reduce_bucket_size").fail("a number of elements");
        }
        settings_.value = std::floor(found->get<double>());
        suspect_elements(*settings_.value, "reduce_bucket_size", settings_);
    }

    void read_dtype() {
        const Json* const found = find(root_, "communication_data_type");
        if (found == nullptr || found->is_null()) {
            return;
        }
        const std::map<std::string, DType> dtypes{{"fp16", DType::float16},
                                                  {"bfp16", DType::bfloat16},
                                                  {"bf16", DType::bfloat16},
                                                  {"bfloat16", DType::bfloat16},
                                                  {"fp32", DType::float32}};
        const auto dtype =
            found->is_string() ? dtypes.find(found->get<std::string>()) : dtypes.end();
        if (dtype == dtypes.end()) {
            child(root_, "communication_data_type").fail("fp32, fp16 or bf16");
        }
        settings_.use.reduced_as = dtype->second;
    }

    void suspect(const JsonPlace& zero, std::int64_t stage) {
        std::vector<std::string>& suspicious = settings_.suspicious;
        if (!settings_.use.overlaps) {
            suspicious.emplace_back(
                "overlap_comm is off, as it is by default in stages 1 and 2: nothing is hidden "
                "behind computing");
        }
        if (find(zero, "allgather_bucket_size") != nullptr) {
            suspicious.emplace_back(
                "allgather_bucket_size counts only where PyTorch has no all_gather_into_tensor: "
                "from 1.13 on all parameters are gathered in one");
        }
        if (!settings_.use.contiguous_gradients) {
            suspicious.emplace_back(
                "without contiguous_gradients the host waits for the device whenever a bucket goes "
                "out, which is not simulated: the step is longer");
        }
        if (!boolean(zero, "use_multi_rank_bucket_allreduce", true)) {
            suspicious.emplace_back(
                "without use_multi_rank_bucket_allreduce each bucket is reduced rank by rank, "
                "which "
                "is not simulated: all-reduces are");
        } else if (settings_.use.reduce_scatter && find(zero, "reduce_scatter") != nullptr) {
            suspicious.emplace_back(
                "reduce_scatter does not scatter: buckets are all-reduced, unless "
                "use_multi_rank_bucket_allreduce is off");
        }
        const Json* const types = find(root_, "data_types");
        const Json* const half = find(root_, "bf16");
        if (stage == 1 && types != nullptr && types->is_object() &&
            types->value("grad_accum_dtype", Json()) == "fp32" && half != nullptr &&
            half->is_object() && half->value("enabled", Json()) == true) {
            suspicious.emplace_back(
                "bf16 with gradients accumulated in fp32 in stage 1 is another optimizer "
                "(BF16_Optimizer): it reduces all gradients at once, after backward, and "
                "reduce_bucket_size and overlap_comm do nothing");
        }
    }

    const JsonPlace& root_;
    TypedSettings settings_;
};

// --- TrainingArguments ---

TypedSettings read_training_arguments(const JsonPlace& root) {
    TypedSettings settings;
    settings.place = SettingPlace::transformers;
    const auto found = [&](const char* key) -> const Json* {
        const auto at = root.value->find(key);
        return at == root.value->end() || at->is_null() ? nullptr : &*at;
    };
    if (const Json* const compiled = found("torch_compile")) {
        settings.compiled = *compiled == true;
    }
    if (const Json* const cap = found("ddp_bucket_cap_mb")) {
        if (!cap->is_number() || cap->get<double>() <= 0) {
            child(root, "ddp_bucket_cap_mb").fail("a number of MiB above 0");
        }
        settings.value = cap->get<double>();
        suspect_mib(*settings.value, "ddp_bucket_cap_mb", settings);
        if (*settings.value == default_mib) {
            suspect_dropped(settings);
            settings.value.reset();
        } else if (*settings.value != std::floor(*settings.value)) {
            settings.suspicious.emplace_back("whole numbers are expected");
        }
        if (settings.value && *settings.value < 1 && settings.compiled == true) {
            suspect_small_when_compiled(settings);
        }
    }
    const Json* const unused = found("ddp_find_unused_parameters");
    if (unused == nullptr) {
        const Json* const checkpointing = found("gradient_checkpointing");
        settings.find_unused_parameters = checkpointing == nullptr || *checkpointing != true;
        if (*settings.find_unused_parameters) {
            suspect_search_for_unused(settings);
        }
    } else if (unused->is_boolean()) {
        settings.find_unused_parameters = unused->get<bool>();
    } else {
        child(root, "ddp_find_unused_parameters").fail("true or false");
    }
    const Json* const accumulation = found("gradient_accumulation_steps");
    if (accumulation != nullptr && accumulation->is_number_integer() &&
        accumulation->get<std::int64_t>() > 0) {
        settings.accumulation = accumulation->get<std::int64_t>();
    }
    return settings;
}

// --- Megatron-LM ---

// The words of a command line; a backslash at the end of a line goes on in the next.
std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    for (const char character : text) {
        const bool splits = std::isspace(static_cast<unsigned char>(character)) != 0 ||
                            character == '\\' || character == '"' || character == '\'' ||
                            character == '=' || character == '(' || character == ')';
        if (!splits) {
            word += character;
        } else if (!word.empty()) {
            words.push_back(std::exchange(word, {}));
        }
    }
    if (!word.empty()) {
        words.push_back(word);
    }
    return words;
}

std::optional<double> number_in(std::string_view text) {
    std::string digits;
    std::ranges::copy_if(text, std::back_inserter(digits), [](char c) { return c != '_'; });
    double value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc{} && rest == end && std::isfinite(value) ? std::optional(value)
                                                                       : std::nullopt;
}

TypedSettings read_megatron(const std::vector<std::string>& words, const std::string& file) {
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
    use.framework =
        distributed ? Framework::megatron_distributed_optimizer : Framework::megatron_lm;
    use.overlaps = has("--overlap-grad-reduce");
    use.gathers_in_forward = has("--overlap-param-gather");
    use.averages_in_collective = has("--ddp-average-in-collective");
    use.reduces_in_bfloat16 = has("--grad-reduce-in-bf16");
    use.checks_gradients = !has("--no-check-for-nan-in-loss-and-grad");
    use.pads_for_bandwidth = has("--ddp-pad-buckets-for-high-nccl-busbw");
    settings.value = value_of("--ddp-bucket-size");
    std::vector<std::string>& suspicious = settings.suspicious;
    if (settings.value) {
        suspect_elements(*settings.value, "--ddp-bucket-size", settings);
    }
    if (value_of("--ddp-num-buckets")) {
        suspicious.emplace_back(
            "--ddp-num-buckets divides the parameters by it for a bucket's size, which is not "
            "simulated: say --ddp-bucket-size");
    }
    if (!use.overlaps) {
        suspicious.push_back(fmt::format(
            "without --overlap-grad-reduce{} all gradients of a dtype are reduced at once, after "
            "backward",
            settings.value ? " --ddp-bucket-size does nothing:" : ""));
    }
    if (distributed && use.overlaps && !use.gathers_in_forward) {
        suspicious.emplace_back(
            "without --overlap-param-gather nothing computes while parameters are gathered");
    }
    if (has("--bf16") && !use.reduces_in_bfloat16) {
        suspicious.emplace_back(
            "gradients travel as float32, twice the bytes, unless --grad-reduce-in-bf16");
    }
    if (use.checks_gradients) {
        suspicious.emplace_back(
            "the host waits for each bucket's norm before it goes out, unless "
            "--no-check-for-nan-in-loss-and-grad");
    }
    return settings;
}

// --- scripts ---

struct Call {
    std::string_view name;
    SettingPlace place;
    bool drops_default = false;
};

// Wrappers before what they call.
constexpr std::array calls{Call{"DDPStrategy(", SettingPlace::lightning},
                           Call{"DistributedDataParallelKwargs(", SettingPlace::accelerate, true},
                           Call{"TrainingArguments(", SettingPlace::transformers, true},
                           Call{"MMDistributedDataParallel", SettingPlace::mmengine},
                           Call{"create_ddp_model(", SettingPlace::detectron2},
                           Call{"parallel_strategy_kwargs", SettingPlace::ray_train},
                           Call{"DistributedDataParallel(", SettingPlace::pytorch_ddp}};

// From the call's name to where as many brackets are closed as it opens.
std::string_view arguments_at(std::string_view text, std::size_t begin) {
    std::size_t depth = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '(' || c == '[' || c == '{') {
            ++depth;
        } else if (c == ')' || c == ']' || c == '}') {
            if (depth <= 1) {
                return text.substr(begin, i + 1 - begin);
            }
            --depth;
        }
    }
    return text.substr(begin);
}

// What stands after a keyword and = or :, up to the argument's end; none: it is not there.
std::optional<std::string> argument_of(std::string_view arguments, std::string_view key) {
    for (std::size_t at = arguments.find(key); at != std::string_view::npos;
         at = arguments.find(key, at + 1)) {
        const auto is_part = [](char c) {
            return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
        };
        std::size_t i = at + key.size();
        if ((at > 0 && is_part(arguments[at - 1])) ||
            (i < arguments.size() && is_part(arguments[i]))) {
            continue;
        }
        while (i < arguments.size() &&
               (arguments[i] == '"' || arguments[i] == '\'' ||
                std::isspace(static_cast<unsigned char>(arguments[i])) != 0)) {
            ++i;
        }
        if (i == arguments.size() || (arguments[i] != '=' && arguments[i] != ':')) {
            continue;
        }
        std::string value;
        std::size_t depth = 0;
        for (++i; i < arguments.size(); ++i) {
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

double mib_in(const std::string& text, std::string_view key, const std::string& file) {
    const auto value = number_in(text);
    if (!value || *value <= 0) {
        throw InputError(file, "", fmt::format("a number of MiB above 0 for {}", key),
                         "\"" + text.substr(0, 40) + "\"");
    }
    return *value;
}

std::optional<bool> flag_of(std::string_view arguments, std::string_view key) {
    const auto text = argument_of(arguments, key);
    return text == "True"    ? std::optional(true)
           : text == "False" ? std::optional(false)
                             : std::nullopt;
}

TypedSettings read_call(const Call& call, std::string_view text, std::size_t at,
                        const std::string& file) {
    const std::string_view arguments = arguments_at(text, at);
    TypedSettings settings;
    settings.place = call.place;
    const std::string key =
        call.place == SettingPlace::transformers ? "ddp_bucket_cap_mb" : "bucket_cap_mb";
    if (const auto cap = argument_of(arguments, key); cap && *cap != "None") {
        settings.value = mib_in(*cap, key, file);
        suspect_mib(*settings.value, key, settings);
        if (call.drops_default && *settings.value == default_mib) {
            suspect_dropped(settings);
            settings.value.reset();
        }
    }
    if (const auto list = argument_of(arguments, "bucket_cap_mb_list"); list && *list != "None") {
        std::string inner = *list;
        std::erase_if(inner, [](char c) { return c == '[' || c == ']'; });
        for (std::size_t begin = 0; begin < inner.size();) {
            const std::size_t end = std::min(inner.find(',', begin), inner.size());
            settings.list.push_back(
                mib_in(inner.substr(begin, end - begin), "bucket_cap_mb_list", file));
            begin = end + 1;
        }
        if (settings.value && !settings.list.empty()) {
            throw InputError(file, "", "bucket_cap_mb or bucket_cap_mb_list", "both");
        }
    }
    settings.views = flag_of(arguments, "gradient_as_bucket_view");
    const bool trainer = call.place == SettingPlace::transformers;
    settings.find_unused_parameters =
        flag_of(arguments, trainer ? "ddp_find_unused_parameters" : "find_unused_parameters");
    if (trainer && !settings.find_unused_parameters) {
        settings.find_unused_parameters = flag_of(arguments, "gradient_checkpointing") != true;
        if (*settings.find_unused_parameters) {
            suspect_search_for_unused(settings);
        }
    }
    if (text.find("torch.compile(") != std::string_view::npos) {
        settings.compiled = true;
    }
    const double largest = settings.list.empty() ? settings.value.value_or(default_mib)
                                                 : *std::ranges::max_element(settings.list);
    if (largest < 1 && settings.compiled == true) {
        suspect_small_when_compiled(settings);
    }
    return settings;
}

}  // namespace

TypedSettings read_typed_settings(const std::string& text, const std::string& file) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] == '{') {
        const Json document = parse_json(text, file);
        const JsonPlace root{&document, file, ""};
        if (document.contains("zero_optimization")) {
            return DeepSpeedReader(root).read();
        }
        for (const char* key : {"ddp_bucket_cap_mb", "ddp_find_unused_parameters", "output_dir",
                                "per_device_train_batch_size", "gradient_checkpointing"}) {
            if (document.contains(key)) {
                return read_training_arguments(root);
            }
        }
        throw InputError(file, "",
                         "zero_optimization, as DeepSpeed has it, or TrainingArguments of "
                         "transformers",
                         "neither");
    }
    for (const Call& call : calls) {
        if (const std::size_t at = text.find(call.name); at != std::string::npos) {
            return read_call(call, text, at, file);
        }
    }
    const std::vector<std::string> words = words_of(text);
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
