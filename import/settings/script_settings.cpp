// A Python script's calls: wrappers of DistributedDataParallel, FSDP and DeepSpeed. Nothing is run,
// so a script that decides at run time is read by its calls in order, and that is said.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "import/settings/reading.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

class Call {
  public:
    Call(const Json& call, const std::string& file)
        : call_(&call),
          name_(call.at("name").get<std::string>()),
          arguments_{&call.at("arguments"), file, std::string(last_part(name_))} {}

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::string_view last() const { return last_part(name_); }
    [[nodiscard]] const JsonPlace& arguments() const { return arguments_; }
    [[nodiscard]] std::int64_t line() const { return call_->at("line").get<std::int64_t>(); }
    [[nodiscard]] bool has(std::string_view key) const { return bucketwise::has(arguments_, key); }
    [[nodiscard]] std::string text(std::string_view key) const {
        return text_at(child(arguments_, key));
    }
    // An argument by name, else by its place.
    [[nodiscard]] std::string text(std::string_view key, std::size_t position) const {
        const Json& positional = call_->at("positional");
        return has(key) || position >= positional.size()
                   ? text(key)
                   : text_at({&positional[position], arguments_.file, arguments_.pointer});
    }
    [[nodiscard]] const Json& spread() const { return call_->at("spread"); }
    [[nodiscard]] bool is_as(const Call& other) const {
        return *arguments_.value == *other.arguments_.value;
    }

  private:
    const Json* call_;
    std::string name_;
    JsonPlace arguments_;
};

// Settings of a call, by its name or arguments.
struct Reader {
    bool (*reads)(const Call& call);
    TypedSettings (*read)(const Call& call, std::optional<bool> compiled);
    bool is_ddp = true;
};

bool is_ddp_strategy(const Call& call) {
    const std::string strategy = call.text("strategy");
    return (call.last() == "Trainer" || call.last() == "Fabric") &&
           (strategy == "ddp" || strategy.starts_with("ddp_"));
}

bool is_named_strategy(const Call& call, std::string_view begin) {
    return (call.last() == "Trainer" || call.last() == "Fabric") &&
           call.text("strategy").starts_with(begin) &&
           call.text("strategy").find('(') == std::string::npos;
}

bool is_training_arguments(const Call& call) {
    constexpr std::array<std::string_view, 6> of_trl{"SFTConfig", "DPOConfig",    "GRPOConfig",
                                                     "PPOConfig", "RewardConfig", "ORPOConfig"};
    return ends_with(call.last(), "TrainingArguments") ||
           std::ranges::find(of_trl, call.last()) != of_trl.end();
}

bool is_mmengine(const Call& call) {
    return call.last() == "MMDistributedDataParallel" ||
           (call.last() == "dict" && ends_with(call.text("type"), "DistributedDataParallel"));
}

template <SettingPlace place>
TypedSettings as_ddp(const Call& call, std::optional<bool> compiled) {
    return read_ddp(call.arguments(), place, compiled);
}

TypedSettings read_lightning(const Call& call, std::optional<bool> compiled) {
    static const Json none = Json::object();
    TypedSettings settings =
        read_ddp({&none, call.arguments().file, ""}, SettingPlace::lightning, compiled);
    if (call.text("strategy") == "ddp_find_unused_parameters_true") {
        settings.find_unused_parameters = true;
    }
    return settings;
}

TypedSettings read_ray(const Call& call, std::optional<bool> compiled) {
    return read_ddp(child(call.arguments(), "parallel_strategy_kwargs"), SettingPlace::ray_train,
                    compiled);
}

TypedSettings read_pytorch_ddp(const Call& call, std::optional<bool> compiled) {
    TypedSettings settings = read_ddp(call.arguments(), SettingPlace::pytorch_ddp, compiled);
    if (call.name().starts_with("apex.")) {
        settings.not_simulated =
            "apex's DistributedDataParallel runs, whose message_size is not simulated";
    }
    if (call.name() == "DDP") {
        settings.notes.emplace_back(
            "DDP is taken for DistributedDataParallel: the file does not import it");
    }
    return settings;
}

bool is_ddp_call(const Call& call) {
    return call.last() == "DistributedDataParallel" || call.name() == "DDP" ||
           (call.last() == "replicate" && call.name() != "replicate") ||
           (call.name() == "replicate" && call.has("bucket_cap_mb"));
}

TypedSettings read_fsdp_call(const Call& call, std::optional<bool> /*compiled*/) {
    const bool second = call.last() == "fully_shard" || call.last() == "ModelParallelStrategy";
    const bool lightning =
        ends_with(call.last(), "Strategy") || call.last() == "Trainer" || call.last() == "Fabric";
    static const Json none = Json::object();
    const bool wraps = second || call.has("auto_wrap_policy");
    TypedSettings settings =
        read_fsdp({&none, call.arguments().file, ""},
                  lightning                          ? SettingPlace::lightning
                  : ends_with(call.last(), "Plugin") ? SettingPlace::accelerate
                                                     : SettingPlace::pytorch_ddp,
                  second);
    ShardingRequest& request = settings.sharding.value();
    std::erase_if(settings.notes, [](const std::string& note) {
        return note.find("group") == 0 || note.find("a group") == 0 || note.find("no module") == 0;
    });
    request.layers_per_group = wraps ? 1 : 0;
    settings.notes.emplace_back(
        wraps ? "a group for each call on a block is taken; the script decides the modules"
              : "no auto_wrap_policy: everything is one group");
    set_strategy_of_fsdp(call.text("sharding_strategy"), settings);
    if (const JsonPlace reshards = child(call.arguments(), "reshard_after_forward");
        reshards.value->is_boolean()) {
        request.reshard_after_forward = reshards.value->get<bool>();
    } else if (reshards.value->is_number_integer() && *reshards.value > 1) {
        request.reshard_ranks = reshards.value->get<std::int64_t>();
    }
    if (is_on(child(call.arguments(), "forward_prefetch"))) {
        request.forward_prefetch = 1;
    }
    return settings;
}

bool is_fsdp_call(const Call& call) {
    constexpr std::array<std::string_view, 6> names{
        "fully_shard",  "FullyShardedDataParallel",       "FSDP",
        "FSDPStrategy", "FullyShardedDataParallelPlugin", "ModelParallelStrategy"};
    return std::ranges::find(names, call.last()) != names.end() || is_named_strategy(call, "fsdp");
}

// deepspeed.initialize(config={...}), DeepSpeedStrategy(stage=...), "deepspeed_stage_2".
TypedSettings read_deepspeed_call(const Call& call, std::optional<bool> /*compiled*/) {
    const char* const key = call.has("config_params") ? "config_params" : "config";
    const JsonPlace config = child(call.arguments(), key);
    if (config.value->is_object() && config.value->contains("zero_optimization")) {
        return read_deepspeed(config);
    }
    const std::string named = call.text("strategy");
    Json zero = Json::object();
    for (const auto& [argument, value] : call.arguments().value->items()) {
        if (value.is_number() || value.is_boolean()) {
            zero[argument == "zero_stage" ? "stage" : argument] = value;
        }
    }
    for (const int stage : {1, 2, 3}) {
        if (named.starts_with(fmt::format("deepspeed_stage_{}", stage))) {
            zero = {{"stage", stage}};
        }
    }
    if (call.last() == "DeepSpeedStrategy" && !zero.contains("stage")) {
        zero["stage"] = 2;  // Lightning's default
    }
    if (zero.contains("stage")) {
        Json document;
        document["zero_optimization"] = std::move(zero);
        return read_deepspeed({&document, call.arguments().file, ""});
    }
    const std::string from = text_at(config);
    return deepspeed_elsewhere(SettingPlace::pytorch_ddp,
                               from.find('(') == std::string::npos ? from : "");
}

bool is_deepspeed_call(const Call& call) {
    return call.name() == "deepspeed.initialize" || call.last() == "DeepSpeedStrategy" ||
           call.last() == "DeepSpeedPlugin" || is_named_strategy(call, "deepspeed");
}

TypedSettings read_trainer(const Call& call, std::optional<bool> compiled) {
    return read_training_arguments(call.arguments(), SettingPlace::transformers, compiled);
}

// Wrappers before the calls that they make.
constexpr std::array readers{
    Reader{[](const Call& call) { return call.last() == "DDPStrategy"; },
           as_ddp<SettingPlace::lightning>},
    Reader{is_ddp_strategy, read_lightning},
    Reader{[](const Call& call) { return call.last() == "DistributedDataParallelKwargs"; },
           as_ddp<SettingPlace::accelerate>},
    Reader{is_training_arguments, read_trainer},
    Reader{is_mmengine, as_ddp<SettingPlace::mmengine>},
    Reader{[](const Call& call) { return call.last() == "create_ddp_model"; },
           as_ddp<SettingPlace::detectron2>},
    Reader{[](const Call& call) { return call.has("parallel_strategy_kwargs"); }, read_ray},
    Reader{is_ddp_call, read_pytorch_ddp},
    Reader{is_fsdp_call, read_fsdp_call, false},
    Reader{is_deepspeed_call, read_deepspeed_call, false}};

using Calls = std::vector<Call>;

const Call* find(const Calls& calls, bool (*reads)(const Call& call)) {
    const auto found = std::ranges::find_if(calls, reads);
    return found == calls.end() ? nullptr : &*found;
}

bool is_compile(const Call& call) {
    return call.name() == "torch.compile" ||
           (call.last() == "compile" && call.name() != "re.compile" && call.name() != "compile");
}

void read_hook(const Calls& calls, TypedSettings& settings) {
    const Call* const call =
        find(calls, [](const Call& one) { return one.last() == "register_comm_hook"; });
    if (call == nullptr) {
        return;
    }
    const std::string hook(last_part(call->text("hook", 1)));
    if (hook == "fp16_compress_hook" || hook == "bf16_compress_hook") {
        settings.comm_hook = hook.front() == 'f' ? CommHook::fp16 : CommHook::bf16;
        settings.notes.push_back(fmt::format("{}: buckets travel with half the bytes", hook));
    } else if (hook != "allreduce_hook") {
        settings.left_out.push_back(
            fmt::format("the comm hook {} is not simulated: buckets are all-reduced whole",
                        hook.empty() ? "of line " + std::to_string(call->line()) : hook));
    }
}

// Anything else of the script that changes a step.
void read_surroundings(const Calls& calls, TypedSettings& settings) {
    const auto called = [&](auto reads) { return find(calls, reads) != nullptr; };
    for (const char* key : {"gradient_accumulation_steps", "accumulate_grad_batches"}) {
        for (const Call& call : calls) {
            const bool counts = call.has(key) && !settings.accumulation &&
                                child(call.arguments(), key).value->is_number_integer();
            settings.accumulation =
                counts ? count_at(child(call.arguments(), key)) : settings.accumulation;
        }
    }
    if (!settings.accumulation && called([](const Call& one) { return one.last() == "no_sync"; })) {
        settings.left_out.emplace_back(
            "no_sync() is called, but the number of micro-steps is the loop's: give it with --set "
            "/step/accumulation=N");
    }
    const bool recomputes = called([](const Call& one) {
        return one.last() == "gradient_checkpointing_enable" ||
               one.last() == "checkpoint_wrapper" ||
               one.last() == "apply_activation_checkpointing" ||
               ends_with(one.name(), "checkpoint.checkpoint");
    });
    if (recomputes && !settings.recompute) {
        settings.recompute.emplace();
        settings.notes.emplace_back("each block is taken for one that is checkpointed");
    }
}

// Other calls of the same kind with other arguments, arguments that are not in the file, and calls
// of another strategy.
void read_others(const Calls& calls, const Call& read, const Reader& by, TypedSettings& settings) {
    for (const Json& spread : read.spread()) {
        settings.left_out.push_back(
            fmt::format("**{} of line {}", spread.get<std::string>(), read.line()));
    }
    for (const Call& other : calls) {
        if (&other != &read && by.is_ddp && by.reads(other) && !other.is_as(read)) {
            settings.left_out.push_back(fmt::format(
                "another call of {} with other arguments, in line {}", other.last(), other.line()));
        }
    }
    for (const Reader& reader : readers) {
        const Call* const other = reader.is_ddp ? nullptr : find(calls, reader.reads);
        if (other != nullptr && by.is_ddp) {
            settings.left_out.push_back(
                fmt::format("the script also calls {} in line {}: which strategy runs is decided "
                            "at run time, and DistributedDataParallel is taken",
                            other->last(), other->line()));
        }
    }
}

// The dtype of MixedPrecision(param_dtype=..., reduce_dtype=...) and MixedPrecisionPolicy.
void read_precision(const Calls& calls, TypedSettings& settings) {
    const Call* const policy = find(calls, [](const Call& one) {
        return one.last() == "MixedPrecision" || one.last() == "MixedPrecisionPolicy";
    });
    if (policy != nullptr && settings.sharding) {
        settings.sharding->parameter_dtype = typed_dtype(policy->text("param_dtype", 0));
        settings.sharding->reduce_dtype = typed_dtype(policy->text("reduce_dtype", 1));
    }
}

}  // namespace

TypedSettings read_script(const Json& script, const std::string& file) {
    Calls calls;
    for (const Json& call : script) {
        calls.emplace_back(call, file);
    }
    for (const Reader& reader : readers) {
        const Call* const call = find(calls, reader.reads);
        if (call == nullptr) {
            continue;
        }
        const Call* const compile = find(calls, is_compile);
        TypedSettings settings =
            reader.read(*call, compile != nullptr ? std::optional(true) : std::nullopt);
        if (compile != nullptr && reader.is_ddp && !settings.sharding) {
            settings.notes.push_back(
                fmt::format("compiled in line {}: DDPOptimizer cuts the graph at the cap, before "
                            "or after the model is wrapped",
                            compile->line()));
        }
        read_hook(calls, settings);
        read_precision(calls, settings);
        read_surroundings(calls, settings);
        read_others(calls, *call, reader, settings);
        return settings;
    }
    throw InputError(file, "",
                     "a script that calls DistributedDataParallel, fully_shard, DeepSpeed or a "
                     "wrapper of one: DDPStrategy, TrainingArguments, "
                     "DistributedDataParallelKwargs ...",
                     "none of them");
}

}  // namespace bucketwise
