#include "sim/report/lever_text.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"

namespace bucketwise {
namespace {

std::string hook_name(const Scenario& scenario, const std::string& dtype) {
    const auto framework =
        scenario.sync.framework ? framework_at(*scenario.sync.framework) : std::nullopt;
    switch (framework.value_or(Framework::pytorch_ddp)) {
        case Framework::pytorch_ddp:
            break;
        case Framework::horovod:
            return "a 16-bit hook (compression=hvd.Compression.fp16)";
        case Framework::deepspeed_zero1:
        case Framework::deepspeed_zero2:
            return fmt::format(R"(16-bit gradients ("communication_data_type": "{}"))", dtype);
        case Framework::megatron_lm:
        case Framework::megatron_distributed_optimizer:
            return "16-bit gradients (--grad-reduce-in-bf16)";
    }
    return fmt::format("a 16-bit hook (register_comm_hook(None, {}_compress_hook))", dtype);
}

std::string accumulation_text(std::int64_t micro_steps) {
    return micro_steps == 1 ? "no accumulation" : fmt::format("{} micro-steps", micro_steps);
}

// "about 35 % less time"; "half the time (12 to 85 % less at the ends of the presets)".
std::string less_saved_text(const Lever& lever) {
    constexpr double noticeable = 0.005;
    const auto& [low, high] = lever.saved;
    const std::string typical =
        lever.typical < noticeable ? "no less time" : less_time_text(lever.typical, lever.typical);
    if (high - low < noticeable) {
        return "about " + typical;
    }
    const std::string range =
        low >= 0 ? percent_range_text(low, high) + " less"
                 : fmt::format("from {} more to {} less", percent_text(-low), percent_text(high));
    return fmt::format("{} ({} at the ends of what is assumed)", typical, range);
}

// "for 3.2 GiB more memory; gradients are summed in 16 bits".
std::string costs_text(const Lever& lever) {
    constexpr std::int64_t noticeable = 100 * bytes_per_mib;
    std::string text;
    if (std::abs(lever.memory) >= noticeable) {
        text = fmt::format(", {} {} {} memory", lever.memory > 0 ? "for" : "with",
                           memory_text(Bytes{std::abs(lever.memory)}),
                           lever.memory > 0 ? "more" : "less");
    }
    for (const LeverChange& change : lever.changes) {
        const std::string cost = lever_cost(change);
        text += cost.empty() ? "" : "; " + cost;
    }
    return text;
}

std::string gain_text(const Lever& lever) {
    const bool accumulates = lever.changes.front().kind == LeverKind::accumulation;
    return fmt::format("{} {}, {}{}", ms_text(lever.step),
                       accumulates ? "for the samples of one step" : "per step",
                       less_saved_text(lever), costs_text(lever));
}

}  // namespace

std::string lever_name(const Scenario& scenario, const LeverChange& change) {
    const std::string& value = change.value;
    switch (change.kind) {
        case LeverKind::gradient_sync:
            return "gradients reduced in the last micro-step alone (gradient_sync: " + value +
                   "; set_requires_gradient_sync(False) in the others)";
        case LeverKind::all_reduce:
            return "replicas reduced in the last micro-step alone (all_reduce: " + value +
                   "; set_requires_all_reduce(False) in the others)";
        case LeverKind::reshard_after_backward:
            return "parameters kept between micro-steps (set_reshard_after_backward(False))";
        case LeverKind::reduce_dtype:
            return fmt::format("gradients reduced as {} (MixedPrecisionPolicy's reduce_dtype)",
                               value);
        case LeverKind::parameter_dtype:
            return fmt::format("parameters gathered as {} (MixedPrecisionPolicy's param_dtype)",
                               value);
        case LeverKind::shard_ranks:
            return fmt::format("parameters shared by {} ranks (hsdp, shard_ranks: {})", value,
                               value);
        case LeverKind::without_sharding:
            return "DistributedDataParallel without sharding (strategy ddp)";
        case LeverKind::comm_hook:
            return hook_name(scenario, value);
        case LeverKind::views:
            return "gradient_as_bucket_view=True";
        case LeverKind::micro_batch:
            return fmt::format("micro-batches of {} with {}", value,
                               accumulation_text(scenario.step.accumulation / 2));
        case LeverKind::sync_each_step:
            return "a host that does not wait for each step's loss (sync_each_step: false)";
        case LeverKind::accumulation:
            return fmt::format("accumulating over {} micro-steps (no_sync() in all but the last)",
                               value);
    }
    return "";
}

std::string lever_cost(const LeverChange& change) {
    switch (change.kind) {
        case LeverKind::comm_hook:
        case LeverKind::reduce_dtype:
            return "gradients are then summed in 16 bits";
        case LeverKind::parameter_dtype:
            return "computing then has 16-bit parameters";
        case LeverKind::accumulation:
            return "the global batch is then 4 times as large";
        default:
            return "";
    }
}

std::string levers_text(const Scenario& scenario, const Levers& levers) {
    std::string text;
    const auto add = [&](const Lever& lever) {
        text += fmt::format(" {} {}: {}.", text.empty() ? "More is saved by" : "Or by",
                            lever_name(scenario, lever.changes.front()), gain_text(lever));
    };
    for (const Lever& lever : levers.alone) {
        add(lever);
    }
    if (levers.together) {
        text += fmt::format(" Both together: {}.", gain_text(*levers.together));
    }
    for (const Lever& lever : levers.others) {
        add(lever);
    }
    return text;
}

}  // namespace bucketwise
