// DeepSpeed's JSON, as DeepSpeed 0.14.3 to 0.19 reads it.
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "import/settings/reading.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// A switch, and its default.
struct DeepSpeedSwitch {
    std::string_view key;
    bool FrameworkUse::*member;
    bool otherwise;
};
constexpr std::array switches{
    DeepSpeedSwitch{"overlap_comm", &FrameworkUse::overlaps, false},
    DeepSpeedSwitch{"reduce_scatter", &FrameworkUse::reduce_scatter, true},
    DeepSpeedSwitch{"contiguous_gradients", &FrameworkUse::contiguous_gradients, true}};

// Elements; empty: missing or "auto", which `is_auto` tells.
std::optional<double> elements_at(const JsonPlace& place, bool& is_auto) {
    constexpr double most = 9e15;
    is_auto = *place.value == "auto";
    const std::optional<double> size = number_at(place);
    if (size && !(*size >= 0 && *size <= most)) {
        place.fail("a number of elements");
    }
    return size ? std::optional(std::floor(*size)) : std::nullopt;
}

std::optional<DType> reduced_type(const JsonPlace& place) {
    if (place.value->is_null()) {
        return std::nullopt;
    }
    const std::optional<DType> dtype = typed_dtype(text_at(place));
    if (!dtype) {
        place.fail("fp32, fp16 or bf16");
    }
    return dtype;
}

bool is_enabled(const JsonPlace& root, std::string_view section) {
    return is_on(child(child(root, section), "enabled"));
}

// Stage 1 of bf16 with fp32 accumulation.
bool uses_bf16_optimizer(const JsonPlace& root) {
    return text_at(child(child(root, "data_types"), "grad_accum_dtype")) == "fp32" &&
           is_enabled(root, "bf16");
}

bool is_offloaded(const JsonPlace& zero, std::string_view key) {
    const JsonPlace section = child(zero, key);
    const std::string device = text_at(child(section, "device"));
    return section.value->is_object() ? device != "none" : is_on(section);
}

void read_common(const JsonPlace& root, const JsonPlace& zero, TypedSettings& settings) {
    settings.accumulation = count_at(child(root, "gradient_accumulation_steps"));
    settings.batches = {count_at(child(root, "train_batch_size")),
                        count_at(child(root, "train_micro_batch_size_per_gpu"))};
    if (is_enabled(root, "bf16") || is_enabled(root, "fp16")) {
        settings.dtype = is_enabled(root, "bf16") ? DType::bfloat16 : DType::float16;
    }
    // GPT-NeoX keeps them beside DeepSpeed's keys.
    settings.parallel.tensor = count_at(child(root, "model_parallel_size")).value_or(1);
    settings.parallel.pipeline =
        std::max<std::int64_t>(count_at(child(root, "pipe_parallel_size")).value_or(1), 1);
    add_remarks({{is_offloaded(zero, "offload_optimizer") || is_on(child(zero, "cpu_offload")),
                  "offload_optimizer: gradients go to the host and the optimizer runs there, "
                  "which is not simulated: the step is longer"},
                 {is_offloaded(zero, "offload_param"),
                  "offload_param: parameters come from the host, which is not simulated: the "
                  "step is longer"}},
                settings.suspicious);
    add_remarks({{has(child(root, "activation_checkpointing"), "partition_activations"),
                  "activation_checkpointing: which blocks are computed again is the script's: give "
                  "it with --set /workload/activation_checkpointing=full"}},
                settings.left_out);
}

void note_auto(TypedSettings& settings) {
    if (settings.auto_sizes.any()) {
        settings.notes.emplace_back(
            "\"auto\" is filled in by transformers from the hidden size h: reduce_bucket_size "
            "h * h, stage3_prefetch_bucket_size 0.9 * h * h, stage3_param_persistence_threshold "
            "10 * h; without a model's hidden size, DeepSpeed's defaults are taken");
    }
}

TypedSettings read_stage_3(const JsonPlace& root, const JsonPlace& zero) {
    TypedSettings settings;
    settings.place = SettingPlace::deepspeed_zero2;
    settings.runs = "DeepSpeed's ZeRO stage 3";
    ShardingRequest& request = settings.sharding.emplace();
    request.strategy = ShardedStrategy::zero3;
    const auto take = [&](const char* key, std::int64_t& target, bool& is_auto) {
        if (const auto size = elements_at(child(zero, key), is_auto)) {
            target = static_cast<std::int64_t>(*size);
        }
    };
    bool ignored = false;
    Zero3Settings& zero3 = request.zero3;
    take("reduce_bucket_size", zero3.reduce_bucket_elements, settings.auto_sizes.reduce_bucket);
    take("stage3_prefetch_bucket_size", zero3.prefetch_elements, settings.auto_sizes.prefetch);
    take("stage3_param_persistence_threshold", zero3.persistence_threshold,
         settings.auto_sizes.persistence);
    take("stage3_max_live_parameters", zero3.max_live_parameters, ignored);
    take("stage3_max_reuse_distance", zero3.max_reuse_distance, ignored);
    read_common(root, zero, settings);
    note_auto(settings);
    add_remarks(
        {{flag_at(child(zero, "overlap_comm")) == false,
          "overlap_comm is off: reductions are not hidden, which is not simulated"},
         {has(zero, "zero_hpz_partition_size") || is_on(child(zero, "zero_quantized_weights")),
          "ZeRO++ (hpZ, qwZ, qgZ) is not simulated"}},
        settings.suspicious);
    return settings;
}

}  // namespace

TypedSettings deepspeed_elsewhere(SettingPlace place, const std::string& file) {
    TypedSettings settings;
    settings.place = place;
    settings.runs = "DeepSpeed";
    settings.not_simulated = fmt::format(
        "DeepSpeed runs, with the settings of {}: check that file; no bucket size of "
        "DDP counts",
        file.empty() ? "another file" : file);
    return settings;
}

TypedSettings read_deepspeed(const JsonPlace& root) {
    const JsonPlace zero = child(root, "zero_optimization");
    if (!zero.value->is_object()) {
        zero.fail("an object");
    }
    const JsonPlace at = child(zero, "stage");
    const double stage = number_at(at).value_or(0);
    if (stage != 1 && stage != 2 && stage != 3) {
        at.fail("stage 1, 2 or 3, whose buckets are known");
    }
    if (stage == 3) {
        return read_stage_3(root, zero);
    }
    const bool first = stage == 1;
    TypedSettings settings;
    settings.place = first ? SettingPlace::deepspeed_zero1 : SettingPlace::deepspeed_zero2;
    FrameworkUse& use = settings.use;
    use.framework = *framework_at(settings.place);
    for (const auto& [key, member, otherwise] : switches) {
        use.*member = flag_at(child(zero, key)).value_or(otherwise);
    }
    settings.value =
        elements_at(child(zero, "reduce_bucket_size"), settings.auto_sizes.reduce_bucket);
    if (settings.value) {
        suspect_unit(*settings.value, "reduce_bucket_size", true, settings);
    }
    note_auto(settings);
    use.reduced_as = reduced_type(child(root, "communication_data_type"));
    const bool all_reduces = flag_at(child(zero, "use_multi_rank_bucket_allreduce")).value_or(true);
    add_remarks(
        {{!use.overlaps,
          "overlap_comm is off, the default of stages 1 and 2: computing hides no communication"},
         {has(zero, "allgather_bucket_size"),
          "allgather_bucket_size counts only where PyTorch has no all_gather_into_tensor: from "
          "1.13 on all parameters are gathered in one"},
         {!use.contiguous_gradients,
          "without contiguous_gradients the host waits for the device whenever a bucket goes out, "
          "which is not simulated: the step is longer"},
         {!all_reduces,
          "without use_multi_rank_bucket_allreduce each bucket is reduced rank by rank, which is "
          "not simulated: all-reduces are"},
         {all_reduces && use.reduce_scatter && has(zero, "reduce_scatter"),
          "reduce_scatter does not scatter: buckets are all-reduced, unless "
          "use_multi_rank_bucket_allreduce is off"},
         {first && uses_bf16_optimizer(root),
          "bf16 with gradients accumulated in fp32 in stage 1 is another optimizer "
          "(BF16_Optimizer): it reduces all gradients at once, after backward, and "
          "reduce_bucket_size and overlap_comm do nothing"}},
        settings.suspicious);
    read_common(root, zero, settings);
    return settings;
}

}  // namespace bucketwise
