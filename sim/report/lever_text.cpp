#include "sim/report/lever_text.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "sim/base/transformed.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"

namespace bucketwise {
namespace {

constexpr std::int64_t noticeable_memory = 100 * bytes_per_mib;
constexpr double noticeable_saving = 0.02;  // with typical presets

std::string typed_hook(const Scenario& scenario, const std::string& dtype) {
    const auto framework =
        scenario.sync.framework ? framework_at(*scenario.sync.framework) : std::nullopt;
    switch (framework.value_or(Framework::pytorch_ddp)) {
        case Framework::pytorch_ddp:
            break;
        case Framework::horovod:
            return "DistributedOptimizer(..., compression=hvd.Compression.fp16)";
        case Framework::deepspeed_zero1:
        case Framework::deepspeed_zero2:
            return fmt::format(R"("communication_data_type": "{}")", dtype);
        case Framework::megatron_lm:
        case Framework::megatron_distributed_optimizer:
            return "--grad-reduce-in-bf16";
    }
    return fmt::format("register_comm_hook(None, default_hooks.{}_compress_hook)", dtype);
}

std::string accumulation_text(std::int64_t micro_steps) {
    return micro_steps == 1 ? "no accumulation" : fmt::format("{} micro-steps", micro_steps);
}

std::string less_percent_text(double share) {
    constexpr double shown = 0.0005;
    return std::abs(share) < shown ? "0 %"
           : share < 0             ? "-" + percent_text(-share)
                                   : percent_text(share);
}

// "35 % less time, from 9 to 57 %", "half the time"; "up to 45 % less time" where only an end of a
// preset saves.
std::string less_saved_text(const Lever& lever) {
    const auto& [low, high] = lever.saved;
    if (lever.typical < noticeable_saving) {
        return fmt::format("up to {}", less_time_text(high, high));
    }
    const std::string text = less_time_text(lever.typical, lever.typical);
    return high - low < noticeable_saving
               ? text
               : fmt::format("{}, from {}", text, percent_range_text(low, high));
}

// "by gradients reduced as bfloat16 (28 % less time, sums of 16 bits)".
std::string named_text(const Scenario& scenario, const Lever& lever) {
    const LeverChange& change = lever.changes.front();
    std::string inner = less_saved_text(lever);
    if (std::abs(lever.memory) >= noticeable_memory) {
        inner += fmt::format(", {} {} memory", memory_text(Bytes{std::abs(lever.memory)}),
                             lever.memory > 0 ? "more" : "less");
    }
    const std::string cost = lever_cost(scenario, change);
    return fmt::format("by {} ({}{})", lever_name(scenario, change), inner,
                       cost.empty() ? "" : ", " + cost);
}

std::vector<std::string> lever_row(const std::string& name, const Lever& lever) {
    const auto& [low, high] = lever.saved;
    const bool has_range = high - low >= 0.005;
    const double gib = static_cast<double>(lever.memory) / static_cast<double>(1 << 30);
    return {name, three_digits(to_ms(lever.step)), less_percent_text(lever.typical),
            has_range ? percent_range_text(low, high) : "",
            std::abs(lever.memory) < noticeable_memory
                ? ""
                : (lever.memory > 0 ? "+" : "-") + three_digits(std::abs(gib))};
}

}  // namespace

std::string lever_name(const Scenario& scenario, const LeverChange& change) {
    const std::string& value = change.value;
    switch (change.kind) {
        case LeverKind::gradient_sync:
            return "gradients reduced in the last micro-step alone";
        case LeverKind::all_reduce:
            return "replicas reduced in the last micro-step alone";
        case LeverKind::reshard_after_backward:
            return "parameters kept between micro-steps";
        case LeverKind::reduce_dtype:
            return "gradients reduced as " + value;
        case LeverKind::parameter_dtype:
            return "parameters gathered as " + value;
        case LeverKind::shard_ranks:
            return fmt::format("parameters shared by {} ranks", value);
        case LeverKind::without_sharding:
            return "DistributedDataParallel without sharding";
        case LeverKind::comm_hook:
            return "a 16-bit hook";
        case LeverKind::views:
            return "gradients as views of their buckets";
        case LeverKind::micro_batch:
            return fmt::format("micro-batches of {} with {}", value,
                               accumulation_text(scenario.step.accumulation / 2));
        case LeverKind::sync_each_step:
            return "a host that does not wait for each step";
        case LeverKind::activation_checkpointing:
            return value == "none" ? "no recomputation" : "results of operators kept";
        case LeverKind::accumulation:
            return fmt::format("accumulating over {} micro-steps", value);
        case LeverKind::nccl_max_ctas:
            return value == "unset" ? "thread blocks as NCCL takes them"
                                    : fmt::format("at most {} thread blocks", value);
        case LeverKind::nccl_nvls:
            return "no sums in the NVSwitch";
        case LeverKind::one_hardware_queue:
            return value == "true" ? "one hardware queue" : "a hardware queue for each stream";
        case LeverKind::execution:
            return "compiled blocks";
        case LeverKind::arithmetic:
            return "products in " + value;
    }
    return "";
}

std::string lever_typed(const Scenario& scenario, const LeverChange& change) {
    const std::string& value = change.value;
    switch (change.kind) {
        case LeverKind::gradient_sync:
            return "set_requires_gradient_sync(False) in all other micro-steps (gradient_sync: " +
                   value + ")";
        case LeverKind::all_reduce:
            return "set_requires_all_reduce(False) in all other micro-steps (all_reduce: " + value +
                   ")";
        case LeverKind::reshard_after_backward:
            return "set_reshard_after_backward(False) in all micro-steps but the last";
        case LeverKind::reduce_dtype:
            return fmt::format("MixedPrecisionPolicy(reduce_dtype=torch.{})", value);
        case LeverKind::parameter_dtype:
            return fmt::format("MixedPrecisionPolicy(param_dtype=torch.{})", value);
        case LeverKind::shard_ranks:
            return fmt::format("a mesh of {} x {} ranks (hsdp, shard_ranks: {})",
                               scenario.group.ranks / std::stoll(value), value, value);
        case LeverKind::without_sharding:
            return "DistributedDataParallel(model) (strategy: ddp)";
        case LeverKind::comm_hook:
            return typed_hook(scenario, value);
        case LeverKind::views:
            return "gradient_as_bucket_view=True";
        case LeverKind::micro_batch:
            return "";
        case LeverKind::sync_each_step:
            return "no loss.item() in each step (sync_each_step: false)";
        case LeverKind::activation_checkpointing:
            return value == "none"
                       ? "no checkpoint_wrapper (activation_checkpointing: none)"
                       : "checkpoint_wrapper with a selective context_fn, torchtitan's \"op\" "
                         "(activation_checkpointing: operators)";
        case LeverKind::accumulation:
            return "no_sync() in all micro-steps but the last";
        case LeverKind::nccl_max_ctas:
            return value == "unset" ? "unset NCCL_MAX_CTAS" : "NCCL_MAX_CTAS=" + value;
        case LeverKind::nccl_nvls:
            return "NCCL_NVLS_ENABLE=0";
        case LeverKind::one_hardware_queue:
            return value == "true" ? "CUDA_DEVICE_MAX_CONNECTIONS=1"
                                   : "unset CUDA_DEVICE_MAX_CONNECTIONS";
        case LeverKind::execution:
            return "torch.compile on each block (execution: compiled)";
        case LeverKind::arithmetic:
            return fmt::format(
                "torchao's convert_to_float8_training with the recipe {} (arithmetic: {})",
                value.substr(value.find('_') + 1), value);
    }
    return "";
}

std::string lever_cost(const Scenario& scenario, const LeverChange& change) {
    switch (change.kind) {
        case LeverKind::activation_checkpointing:  // of a model they are counted
            return std::holds_alternative<GradientWorkload>(scenario.workload)
                       ? "if memory holds all activations"
                       : "";
        case LeverKind::comm_hook:
        case LeverKind::reduce_dtype:
            return "sums of 16 bits";
        case LeverKind::parameter_dtype:
            return "16-bit parameters in computing";
        case LeverKind::accumulation:
            return "a global batch 4 times as large";
        default:
            return "";
    }
}

std::string levers_sentence(const Scenario& scenario, const Levers& levers) {
    std::vector<std::string> named =
        transformed(levers.alone, [&](const Lever& one) { return named_text(scenario, one); });
    for (const Lever& other : levers.others) {
        if (named.empty() || other.changes.front().kind != LeverKind::micro_batch) {
            named.push_back(named_text(scenario, other));
        }
    }
    if (named.empty()) {
        return "";
    }
    const std::vector<Lever>& first = levers.alone.empty() ? levers.others : levers.alone;
    std::string text =
        first.front().typical < noticeable_saving ? " More may be saved " : " More is saved ";
    for (std::size_t i = 0; i < named.size(); ++i) {
        text += (i == 0 ? "" : i + 1 < named.size() ? ", " : " or ") + named[i];
    }
    return text + ".";
}

std::string levers_table(const Scenario& scenario, const Levers& levers) {
    std::vector<std::vector<std::string>> rows;
    std::string typed;
    const auto add = [&](const Lever& lever) {
        const LeverChange& change = lever.changes.front();
        rows.push_back(lever_row(lever_name(scenario, change), lever));
        const std::string line = lever_typed(scenario, change);
        typed += line.empty() ? "" : "    " + line + "\n";
    };
    for (const Lever& lever : levers.alone) {
        add(lever);
    }
    if (levers.together) {
        rows.push_back(lever_row("both", *levers.together));
    }
    for (const Lever& lever : levers.others) {
        add(lever);
    }
    if (rows.empty()) {
        return "";
    }
    std::vector<TextColumn> columns{{.heading = "other knobs", .left = true},
                                    {"step (ms)"},
                                    {"less time"},
                                    {"at the ends"},
                                    {"memory (GiB)"}};
    for (std::size_t i = columns.size(); i-- > 0;) {
        const auto at = static_cast<std::ptrdiff_t>(i);
        if (std::ranges::all_of(rows, [&](const auto& row) { return row[i].empty(); })) {
            columns.erase(columns.begin() + at);
            std::ranges::for_each(rows, [&](auto& row) { row.erase(row.begin() + at); });
        }
    }
    return "\n" + text_table(columns, rows) + (typed.empty() ? "" : "  to type:\n" + typed);
}

std::string tuned_text(const Scenario& scenario, Tuned tuned, const std::vector<Lever>& levers) {
    const bool are_variables = tuned == Tuned::nccl;  // whose names say what they do
    const std::string_view of = are_variables ? "NCCL's variables" : "ways to compute";
    if (levers.empty()) {
        return fmt::format("\n{}: none has an effect here that is modelled.\n", of);
    }
    std::vector<std::vector<std::string>> rows;
    std::string typed;
    for (const Lever& lever : levers) {
        std::string name;
        for (const LeverChange& change : lever.changes) {
            name += (name.empty() ? "" : " and ") +
                    (are_variables ? lever_typed(scenario, change) : lever_name(scenario, change));
        }
        rows.push_back(lever_row(name, lever));
        rows.back().pop_back();
        if (lever.changes.size() == 1) {
            typed += "    " + lever_typed(scenario, lever.changes.front()) + "\n";
        }
    }
    const std::string first = levers.front().typical >= noticeable_saving
                                  ? fmt::format("{} saves most: {}", rows.front().front(),
                                                less_saved_text(levers.front()))
                                  : std::string("none saves 2 % or more; leave them as they are");
    const std::string table =
        text_table({{.heading = are_variables ? "to type" : "way", .left = true},
                    {"step (ms)"},
                    {"less time"},
                    {"at the ends"}},
                   rows);
    return fmt::format(
        "\n{}, each at the better of the advised setting and one's own: {}.\n{}{}"
        "  A prior, not a measurement: {}.\n",
        of, first, table, are_variables ? "" : "  to type:\n" + typed,
        are_variables
            ? "thread blocks move what NCCL's tables say of a channel, and take "
              "multiprocessors from computing"
            : "kernels and their rates follow from the model and the device's data sheet");
}

}  // namespace bucketwise
