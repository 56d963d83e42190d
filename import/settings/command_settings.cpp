// Command lines: Megatron-LM's arguments, TrainingArguments, accelerate launch, fairseq-train.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "import/settings/reading.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// A switch, the member that it sets, and to what.
struct MegatronSwitch {
    std::string_view key;
    bool FrameworkUse::*member;
    bool value;
};
constexpr std::array megatron_switches{
    MegatronSwitch{"overlap_grad_reduce", &FrameworkUse::overlaps, true},
    MegatronSwitch{"overlap_param_gather", &FrameworkUse::gathers_in_forward, true},
    MegatronSwitch{"ddp_average_in_collective", &FrameworkUse::averages_in_collective, true},
    MegatronSwitch{"grad_reduce_in_bf16", &FrameworkUse::reduces_in_bfloat16, true},
    MegatronSwitch{"no_check_for_nan_in_loss_and_grad", &FrameworkUse::checks_gradients, false},
    MegatronSwitch{"ddp_pad_buckets_for_high_nccl_busbw", &FrameworkUse::pads_for_bandwidth, true}};

// Flags by name, without leading dashes and with underscores; one without a value is true.
Json flags_of(const std::vector<std::string>& words) {
    Json flags = Json::object();
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (!word.starts_with("--") || word.size() < 3) {
            continue;
        }
        const std::size_t equals = std::min(word.find('='), word.size());
        std::string name = word.substr(2, equals - 2);
        std::ranges::replace(name, '-', '_');
        const bool has_next = i + 1 < words.size() && !words[i + 1].starts_with("--");
        flags[name] = equals < word.size() ? Json(word.substr(equals + 1))
                      : has_next           ? Json(words[i + 1])
                                           : Json(true);
    }
    return flags;
}

std::optional<double> bucket_at(const JsonPlace& flags, const char* key, const char* typed) {
    if (!has(flags, key)) {
        return std::nullopt;
    }
    const JsonPlace place{child(flags, key).value, flags.file, ""};
    const auto refuse = [&] {
        throw InputError(flags.file, "", fmt::format("a whole number after {}", typed),
                         place.value->is_string() ? place.value->dump() : "nothing");
    };
    std::optional<double> value;
    try {
        value = place.value->is_string() ? number_at(place) : std::nullopt;
    } catch (const InputError&) {
        refuse();
    }
    if (!value || *value < 1 || *value > 9e15) {
        refuse();
    }
    return value;
}

// The data-parallel wrapper that runs instead of Megatron-LM's own; empty: its own.
bool runs_another(const JsonPlace& flags, TypedSettings& settings) {
    if (has(flags, "use_torch_fsdp2")) {
        settings.sharding.emplace().parameter_dtype =
            has(flags, "bf16") ? std::optional(DType::bfloat16) : std::nullopt;
        settings.runs = "FSDP2 (--use-torch-fsdp2)";
        settings.notes.emplace_back(
            "a group for each layer; Megatron-LM's own buckets count for nothing");
        return true;
    }
    for (const auto& [key, typed] : {std::pair("use_megatron_fsdp", "--use-megatron-fsdp"),
                                     std::pair("use_custom_fsdp", "--use-custom-fsdp")}) {
        if (has(flags, key)) {
            settings.runs = fmt::format("Megatron-FSDP ({})", typed);
            settings.not_simulated =
                "Megatron-FSDP shards by its own rule, which is not simulated; --ddp-bucket-size "
                "counts for nothing";
            return true;
        }
    }
    if (has(flags, "overlapped_distributed_optimizer")) {
        settings.runs = "Megatron-LLaMA's OverlappedDistributedOptimizer";
        settings.not_simulated = fmt::format(
            "a fork of Megatron-LM with buckets of its own ({} elements), which are not simulated",
            has(flags, "reduce_bucket_size") ? text_at(child(flags, "reduce_bucket_size"))
                                             : "its default's");
        return true;
    }
    if (text_at(child(flags, "DDP_impl")) == "torch") {
        settings.place = SettingPlace::pytorch_ddp;
        settings.use = {};
        settings.notes.emplace_back(
            "--DDP-impl torch, of Megatron-LM until 2022: PyTorch's DistributedDataParallel with "
            "its default cap");
        return true;
    }
    return false;
}

void read_parallel(const JsonPlace& flags, TypedSettings& settings) {
    const auto ranks = [&](const char* key) { return count_at(child(flags, key)).value_or(1); };
    settings.parallel = {.tensor = ranks("tensor_model_parallel_size"),
                         .pipeline = ranks("pipeline_model_parallel_size"),
                         .context = ranks("context_parallel_size")};
    settings.batches = {count_at(child(flags, "global_batch_size")),
                        count_at(child(flags, "micro_batch_size"))};
    const bool selective = has(flags, "recompute_activations") ||
                           text_at(child(flags, "recompute_granularity")) == "selective";
    if (text_at(child(flags, "recompute_granularity")) == "full") {
        settings.recompute = Recompute{.reentrant = true};
        if (text_at(child(flags, "recompute_method")) == "block") {
            settings.recompute->blocks = count_at(child(flags, "recompute_num_layers"));
        }
    }
    add_remarks({{selective,
                  "attention is computed again in backward, which is not simulated: kernels that "
                  "fuse it do so anyway"},
                 {has(flags, "fp8_format"), "Transformer Engine's FP8 products are not simulated"}},
                settings.left_out);
}

TypedSettings read_megatron(const JsonPlace& flags) {
    TypedSettings settings;
    const bool distributed = has(flags, "use_distributed_optimizer");
    settings.place =
        distributed ? SettingPlace::megatron_distributed_optimizer : SettingPlace::megatron_lm;
    FrameworkUse& use = settings.use;
    use.framework = *framework_at(settings.place);
    read_parallel(flags, settings);
    if (runs_another(flags, settings)) {
        return settings;
    }
    for (const auto& [key, member, value] : megatron_switches) {
        use.*member = has(flags, key) == value;
    }
    settings.value = bucket_at(flags, "ddp_bucket_size", "--ddp-bucket-size");
    if (settings.value) {
        suspect_unit(*settings.value, "--ddp-bucket-size", true, settings);
    }
    const bool divides = bucket_at(flags, "ddp_num_buckets", "--ddp-num-buckets").has_value();
    add_remarks(
        {{divides,
          "--ddp-num-buckets divides the parameters by it for a bucket's size, which is not "
          "simulated: say --ddp-bucket-size"},
         {!use.overlaps && settings.value,
          "without --overlap-grad-reduce --ddp-bucket-size does nothing: all gradients of a dtype "
          "are reduced at once, after backward"},
         {!use.overlaps && !settings.value,
          "without --overlap-grad-reduce all gradients of a dtype are reduced at once, after "
          "backward"},
         {distributed && use.overlaps && !use.gathers_in_forward,
          "without --overlap-param-gather nothing computes while parameters are gathered"},
         {has(flags, "bf16") && !use.reduces_in_bfloat16,
          "gradients travel as float32, twice the bytes, unless --grad-reduce-in-bf16"},
         {use.checks_gradients,
          "the host waits for each bucket's norm before it goes out, unless "
          "--no-check-for-nan-in-loss-and-grad"}},
        settings.suspicious);
    return settings;
}

bool has_any(const JsonPlace& flags, std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return has(flags, key); });
}

// accelerate launch: Accelerate's configuration as flags.
TypedSettings read_launch(const JsonPlace& flags) {
    if (has(flags, "config_file")) {
        TypedSettings settings;
        settings.place = SettingPlace::accelerate;
        settings.runs = "Accelerate";
        settings.not_simulated = fmt::format("the settings are in {}: check that file",
                                             text_at(child(flags, "config_file")));
        return settings;
    }
    Json document = Json::object();
    document["distributed_type"] = is_on(child(flags, "use_fsdp"))        ? "FSDP"
                                   : is_on(child(flags, "use_deepspeed")) ? "DEEPSPEED"
                                                                          : "MULTI_GPU";
    document["mixed_precision"] = text_at(child(flags, "mixed_precision"));
    document["fsdp_config"] = *flags.value;
    document["deepspeed_config"] = *flags.value;
    return read_accelerate({&document, flags.file, ""});
}

TypedSettings read_fairseq(const JsonPlace& flags) {
    TypedSettings settings;
    settings.place = SettingPlace::fairseq;
    settings.value = bucket_at(flags, "bucket_cap_mb", "--bucket-cap-mb");
    const std::string backend = text_at(child(flags, "ddp_backend"));
    if (!backend.empty() && backend != "pytorch_ddp" && backend != "c10d") {
        settings.not_simulated = fmt::format("--ddp-backend {} is not simulated", backend);
    }
    settings.find_unused_parameters = is_on(child(flags, "find_unused_parameters"));
    return settings;
}

}  // namespace

TypedSettings read_command(const Json& commands, const std::string& file) {
    std::vector<std::string> words;
    for (const Json& command : commands) {
        for (const Json& word : command) {
            words.push_back(word.get<std::string>());
        }
    }
    const Json document = flags_of(words);
    const JsonPlace flags{&document, file, ""};
    const auto says = [&](std::string_view word) {
        return std::ranges::any_of(words, [&](const std::string& one) {
            return one == word || one.ends_with("/" + std::string(word));
        });
    };
    if (says("accelerate") &&
        has_any(flags, {"config_file", "use_fsdp", "use_deepspeed", "multi_gpu"})) {
        return read_launch(flags);
    }
    if (says("fairseq-train") || has(flags, "ddp_backend")) {
        return read_fairseq(flags);
    }
    if (has(flags, "deepspeed_config")) {
        return deepspeed_elsewhere(SettingPlace::deepspeed_zero2,
                                   text_at(child(flags, "deepspeed_config")));
    }
    if (has_any(flags, {"ddp_bucket_size", "ddp_num_buckets", "overlap_grad_reduce",
                        "use_distributed_optimizer", "tensor_model_parallel_size",
                        "micro_batch_size", "DDP_impl", "use_torch_fsdp2", "use_megatron_fsdp",
                        "overlapped_distributed_optimizer"})) {
        return read_megatron(flags);
    }
    if (has_any(flags, {"fsdp", "deepspeed", "ddp_bucket_cap_mb", "per_device_train_batch_size",
                        "ddp_find_unused_parameters"})) {
        return read_training_arguments(flags, SettingPlace::transformers, std::nullopt);
    }
    throw InputError(file, "",
                     "a command line with arguments of Megatron-LM, TrainingArguments, accelerate "
                     "launch or fairseq-train; what a script decides is read from the script",
                     "none of them");
}

}  // namespace bucketwise
