// FSDP's settings: PyTorch's own, and those of Accelerate, TrainingArguments and torchtitan.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "import/settings/reading.h"

namespace bucketwise {
namespace {

// FullyShardedDataParallel's strategies, by name and number.
struct FsdpStrategy {
    std::string_view name;
    int number;
    bool reshards;
    bool replicates;
};
constexpr std::array strategies{FsdpStrategy{"full_shard", 1, true, false},
                                FsdpStrategy{"shard_grad_op", 2, false, false},
                                FsdpStrategy{"no_shard", 3, false, false},
                                FsdpStrategy{"hybrid_shard", 4, true, true},
                                FsdpStrategy{"hybrid_shard_zero2", 5, false, true},
                                FsdpStrategy{"_hybrid_shard_zero2", 5, false, true}};

void set_strategy(const FsdpStrategy& strategy, TypedSettings& settings) {
    ShardingRequest& request = settings.sharding.value();
    request.reshard_after_forward = strategy.reshards;
    if (strategy.replicates) {
        request.strategy = ShardedStrategy::hsdp;
    }
    if (strategy.name == "no_shard") {
        settings.not_simulated =
            "NO_SHARD keeps parameters whole and all-reduces group by group, which is not "
            "simulated: DistributedDataParallel does the same in buckets";
    }
}

// The key with or without FSDP's prefix.
JsonPlace key_of(const JsonPlace& config, std::string_view key) {
    const JsonPlace prefixed = child(config, "fsdp_" + std::string(key));
    return prefixed.value->is_null() ? child(config, key) : prefixed;
}

// One text, or a list of texts, with names apart by commas or spaces.
std::vector<std::string> names_at(const JsonPlace& place) {
    std::vector<std::string> names(1);
    const auto add = [&](const std::string& text) {
        for (const char c : text + ",") {
            if (c != ',' && c != ' ') {
                names.back() += c;
            } else if (!names.back().empty()) {
                names.emplace_back();
            }
        }
    };
    if (place.value->is_array()) {
        for (const Json& name : *place.value) {
            add(text_at({&name, place.file, place.pointer}));
        }
    } else {
        add(text_at(place));
    }
    names.pop_back();
    return names;
}

void read_groups(const JsonPlace& config, bool wraps_layers, TypedSettings& settings) {
    ShardingRequest& request = settings.sharding.value();
    const std::vector<std::string> classes =
        names_at(key_of(config, "transformer_layer_cls_to_wrap"));
    const std::string policy = lowered(text_at(key_of(config, "auto_wrap_policy")));
    const std::optional<double> least = number_at(key_of(config, "min_num_params"));
    if (policy == "size_based_wrap" || (least.value_or(0) > 0 && classes.empty())) {
        settings.left_out.push_back(
            fmt::format("modules are wrapped by their size ({}): groups by layer are taken instead",
                        least ? fmt::format("min_num_params {:.0f}", *least) : "min_num_params"));
    } else if (!classes.empty()) {
        settings.notes.push_back(fmt::format("a group for each {}", fmt::join(classes, ", ")));
    } else if (policy == "no_wrap" || !wraps_layers) {
        request.layers_per_group = 0;
        settings.notes.emplace_back("no module is wrapped by itself: everything is one group");
    } else {
        settings.notes.emplace_back("a group for each of the model's _no_split_modules");
    }
}

void set_mixed_precision(std::optional<DType> dtype, TypedSettings& settings) {
    if (dtype && *dtype != DType::float32) {
        settings.sharding->parameter_dtype = dtype;
        settings.sharding->reduce_dtype = dtype;
    }
}

void begin_fsdp(SettingPlace place, bool second_version, TypedSettings& settings) {
    settings.place = place;
    settings.sharding.emplace();
    settings.runs = second_version ? "FSDP2 (fully_shard)" : "FSDP1 (FullyShardedDataParallel)";
    if (!second_version) {
        settings.notes.emplace_back("FSDP1 is predicted as FSDP2 with the same groups");
    }
}

void read_choices(const JsonPlace& config, TypedSettings& settings) {
    ShardingRequest& request = settings.sharding.value();
    const JsonPlace reshards = key_of(config, "reshard_after_forward");
    if (const std::string named = text_at(reshards);
        !named.empty() &&
        std::ranges::any_of(strategies, [&](const auto& s) { return s.name == lowered(named); })) {
        set_strategy_of_fsdp(named, settings);
    } else if (const auto flag = flag_at(reshards)) {
        request.reshard_after_forward = *flag;
    }
    request.forward_prefetch = is_on(key_of(config, "forward_prefetch")) ? 1 : 0;
    add_remarks({{is_on(key_of(config, "offload_params")) || is_on(key_of(config, "cpu_offload")),
                  "parameters are offloaded to the host, which is not simulated: the step is "
                  "longer"}},
                settings.suspicious);
    read_checkpointing(key_of(config, "activation_checkpointing"), settings);
}

}  // namespace

void set_strategy_of_fsdp(std::string_view name, TypedSettings& settings) {
    const std::string plain = lowered(last_part(name));
    for (const FsdpStrategy& strategy : strategies) {
        if (plain == strategy.name || plain == std::to_string(strategy.number)) {
            set_strategy(strategy, settings);
        }
    }
}

// TrainingArguments keep the strategy in `fsdp` and the rest in `fsdp_config`; a command line has
// all of it side by side.
TypedSettings read_fsdp(const JsonPlace& arguments, SettingPlace place, bool second_version) {
    TypedSettings settings;
    begin_fsdp(place, second_version, settings);
    bool wraps_layers = second_version;
    for (const std::string& word : names_at(child(arguments, "fsdp"))) {
        wraps_layers = wraps_layers || word == "auto_wrap";
        set_strategy_of_fsdp(word, settings);
        if (word == "offload") {
            settings.suspicious.emplace_back(
                "offload: parameters are on the host, which is not simulated: the step is longer");
        }
    }
    const JsonPlace config = child(arguments, "fsdp_config");
    if (config.value->is_string()) {
        settings.left_out.push_back(
            fmt::format("fsdp_config is in another file, {}", text_at(config)));
    }
    const JsonPlace& keys = config.value->is_object() ? config : arguments;
    read_groups(keys,
                wraps_layers || has(keys, "transformer_layer_cls_to_wrap") ||
                    has(keys, "fsdp_transformer_layer_cls_to_wrap"),
                settings);
    read_choices(keys, settings);
    for (const auto& [key, dtype] :
         {std::pair("bf16", DType::bfloat16), std::pair("fp16", DType::float16)}) {
        if (is_on(child(arguments, key))) {
            set_mixed_precision(dtype, settings);
        }
    }
    return settings;
}

namespace {

TypedSettings read_accelerate_fsdp(const JsonPlace& root) {
    const JsonPlace config = child(root, "fsdp_config");
    TypedSettings settings;
    begin_fsdp(SettingPlace::accelerate, number_at(key_of(config, "version")).value_or(1) == 2,
               settings);
    const JsonPlace strategy = key_of(config, "sharding_strategy");
    if (!strategy.value->is_null()) {
        set_strategy_of_fsdp(strategy.value->is_number()
                                 ? fmt::format("{:.0f}", number_at(strategy).value_or(1))
                                 : text_at(strategy),
                             settings);
    }
    read_groups(config, true, settings);
    read_choices(config, settings);
    return settings;
}

TypedSettings read_accelerate_deepspeed(const JsonPlace& root) {
    const JsonPlace config = child(root, "deepspeed_config");
    if (const std::string file = text_at(child(config, "deepspeed_config_file")); !file.empty()) {
        return deepspeed_elsewhere(SettingPlace::accelerate, file);
    }
    // Accelerate's own configuration of each stage.
    Json zero{{"stage", number_at(child(config, "zero_stage")).value_or(2)}};
    zero["overlap_comm"] = false;
    if (const std::string device = text_at(child(config, "offload_optimizer_device"));
        !device.empty()) {
        zero["offload_optimizer"] = {{"device", device}};
    }
    if (const std::string device = text_at(child(config, "offload_param_device"));
        !device.empty()) {
        zero["offload_param"] = {{"device", device}};
    }
    if (zero["stage"] == 3) {
        zero.erase("overlap_comm");
    }
    Json document;
    document["zero_optimization"] = std::move(zero);
    TypedSettings settings = read_deepspeed({&document, root.file, root.pointer});
    settings.accumulation = count_at(child(config, "gradient_accumulation_steps"));
    return settings;
}

}  // namespace

TypedSettings read_accelerate(const JsonPlace& root) {
    const std::string type = text_at(child(root, "distributed_type"));
    TypedSettings settings;
    if (type == "FSDP") {
        settings = read_accelerate_fsdp(root);
    } else if (type == "DEEPSPEED") {
        settings = read_accelerate_deepspeed(root);
    } else if (type == "MULTI_GPU" || type == "MULTI_CPU") {
        settings.place = SettingPlace::accelerate;
        settings.notes.emplace_back(
            "the bucket size is typed in the script: DistributedDataParallelKwargs");
    } else {
        child(root, "distributed_type").fail("FSDP, DEEPSPEED, MULTI_GPU or MULTI_CPU");
    }
    const auto dtype = typed_dtype(text_at(child(root, "mixed_precision")));
    if (settings.sharding && settings.sharding->strategy != ShardedStrategy::zero3) {
        set_mixed_precision(dtype, settings);
    } else if (type == "DEEPSPEED" && dtype && *dtype != DType::float32) {
        settings.dtype = dtype;
    }
    return settings;
}

// torchtitan's activation_checkpoint: every second block where nothing is said.
void read_torchtitan_recompute(const JsonPlace& section, TypedSettings& settings) {
    const std::string mode = text_at(child(section, "mode"));
    if (mode == "none") {
        return;
    }
    if (mode == "memory_budget") {
        settings.left_out.emplace_back(
            "activation_checkpoint: a memory budget leaves it to the compiler what is computed "
            "again: give it with --set /workload/activation_checkpointing=operators");
        return;
    }
    const JsonPlace option = child(section, "selective_ac_option");
    Recompute& recompute = settings.recompute.emplace();
    if (mode != "full") {
        constexpr std::int64_t every_second = 2;
        recompute.keeps = text_at(option) == "op" ? CheckpointKeeps::operators : recompute.keeps;
        recompute.every = recompute.keeps == CheckpointKeeps::operators
                              ? 1
                              : count_at(option).value_or(every_second);
    }
}

// Float8Linear: a list of converters, and the recipe beside it.
void read_torchtitan_float8(const JsonPlace& root, TypedSettings& settings) {
    const JsonPlace newer = child(child(child(root, "quantize"), "linear"), "float8");
    const JsonPlace recipes = newer.value->is_null() ? child(root, "float8") : newer;
    const std::vector<std::string> converters = names_at(child(child(root, "model"), "converters"));
    if (std::ranges::any_of(converters, [](const std::string& name) {
            return name == "float8" || name == "quantize.linear.float8";
        })) {
        const std::string recipe = text_at(child(recipes, "recipe_name"));
        settings.arithmetic = recipe.starts_with("rowwise") ? Arithmetic::float8_rowwise
                                                            : Arithmetic::float8_tensorwise;
        settings.sharding->float8_all_gather =
            settings.arithmetic == Arithmetic::float8_tensorwise &&
            is_on(child(recipes, "enable_fsdp_float8_all_gather"));
    }
}

// fully_shard on each block, then the root (torchtitan/models/*/infra/parallelize.py).
TypedSettings read_torchtitan(const JsonPlace& root) {
    const JsonPlace parallelism = child(root, "parallelism");
    const JsonPlace training = child(root, "training");
    const auto degree = [&](const char* key) {
        const std::optional<double> number = number_at(child(parallelism, key));
        return number ? static_cast<std::int64_t>(*number) : 1;
    };
    const std::int64_t shards =
        has(parallelism, "data_parallel_shard_degree") ? degree("data_parallel_shard_degree") : -1;
    TypedSettings settings;
    settings.parallel = {.tensor = std::max<std::int64_t>(degree("tensor_parallel_degree"), 1),
                         .pipeline = std::max<std::int64_t>(degree("pipeline_parallel_degree"), 1),
                         .context = std::max<std::int64_t>(degree("context_parallel_degree"), 1)};
    settings.batches = {count_at(child(training, "global_batch_size")).value_or(0) > 0
                            ? count_at(child(training, "global_batch_size"))
                            : std::nullopt,
                        count_at(child(training, "local_batch_size"))};
    if (shards == 1) {
        settings.place = SettingPlace::torchtitan;
        settings.not_simulated =
            "replicate() runs, which reduces what each wrapped module holds: no bucket size counts";
        return settings;
    }
    begin_fsdp(SettingPlace::torchtitan, true, settings);
    ShardingRequest& request = settings.sharding.value();
    if (degree("data_parallel_replicate_degree") > 1) {
        request.strategy = ShardedStrategy::hsdp;
        if (shards > 1) {
            request.shard_ranks = shards;
        }
    }
    const std::string reshards = text_at(child(parallelism, "fsdp_reshard_after_forward"));
    request.reshard_after_forward =
        reshards == "always" || (reshards != "never" && settings.parallel.pipeline == 1);
    request.reshard_root = reshards == "always";
    const auto dtype_at = [&](const char* key, DType otherwise) {
        return typed_dtype(text_at(child(training, key))).value_or(otherwise);
    };
    request.parameter_dtype = dtype_at("mixed_precision_param", DType::bfloat16);
    request.reduce_dtype = dtype_at("mixed_precision_reduce", DType::float32);
    settings.notes.emplace_back("a group for each block, and the rest in the root's");
    read_torchtitan_recompute(child(root, "activation_checkpoint"), settings);
    read_torchtitan_float8(root, settings);
    settings.compiles_blocks = is_on(child(child(root, "compile"), "enable"));
    return settings;
}

}  // namespace bucketwise
