#include "sim/frameworks/sharded_setting.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/transformed.h"
#include "sim/sharding/shard_plan.h"
#include "sim/workload/modules.h"

namespace bucketwise {
namespace {

using Lines = std::vector<std::string>;

bool is_index(const std::string& part) {
    return part.find_first_not_of("0123456789") == std::string::npos;
}

bool is_identifier(const std::string& part) {
    return !part.empty() && part.find_first_not_of(
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTU"
                                "VWXYZ_0123456789") == std::string::npos;
}

// Python's way to a module: numbers are indices.
std::string module_path(const std::string& module) {
    std::string path = "model";
    for (std::size_t begin = 0; begin < module.size();) {
        const std::size_t dot = std::min(module.find('.', begin), module.size());
        const std::string part = module.substr(begin, dot - begin);
        if (!is_identifier(part)) {
            return fmt::format("model.get_submodule(\"{}\")", module);
        }
        path += is_index(part) ? "[" + part + "]" : "." + part;
        begin = dot + 1;
    }
    return path;
}

// "model.transformer.h" of "transformer.h.3", "model" of "3".
std::string list_name(const std::string& block) {
    const std::size_t dot = block.rfind('.');
    return dot == std::string::npos ? "model" : module_path(block.substr(0, dot));
}

// "model.layers[2]", "list(model.layers[2:5])" of neighbours, else each in a list.
std::string modules_expression(const std::vector<std::string>& modules) {
    const auto index_of = [](const std::string& module) {
        const std::string last = module.substr(module.rfind('.') + 1);
        return is_index(last) && last.size() < 9 ? std::stoi(last) : -1;
    };
    if (modules.size() == 1) {
        return module_path(modules.front());
    }
    const int first = index_of(modules.front());
    for (std::size_t i = 0; i < modules.size(); ++i) {
        if (first < 0 || list_name(modules[i]) != list_name(modules.front()) ||
            index_of(modules[i]) != first + static_cast<int>(i)) {
            return fmt::format("[{}]", fmt::join(transformed(modules, module_path), ", "));
        }
    }
    const std::string path = module_path(modules.front());
    return fmt::format("list({}[{}:{}])", path.substr(0, path.rfind('[')), first,
                       first + static_cast<int>(modules.size()));
}

std::string torch_dtype(DType dtype) {
    return fmt::format("torch.{}", name_of(dtype));
}

// The arguments of every fully_shard call after its modules.
std::string arguments(const ShardedInput& input) {
    const ShardingRequest& request = input.request;
    std::string text;
    if (input.step.replicas.group.ranks > 1) {
        text += ", mesh=mesh";
    }
    if (request.parameter_dtype || request.reduce_dtype) {
        text += ", mp_policy=policy";
    }
    return text;
}

std::string reshard_argument(const ShardingRequest& request) {
    if (request.reshard_ranks) {
        return fmt::format(", reshard_after_forward={}", *request.reshard_ranks);
    }
    return request.reshard_after_forward ? "" : ", reshard_after_forward=False";
}

void add_preparations(const ShardedInput& input, Lines& lines) {
    const ShardingRequest& request = input.request;
    if (input.step.replicas.group.ranks > 1) {
        lines.push_back(
            fmt::format("mesh = init_device_mesh(\"{}\", ({}, {}), "
                        "mesh_dim_names=(\"replicate\", \"shard\"))",
                        input.step.workload.host_is_device ? "cpu" : "cuda",
                        input.step.replicas.group.ranks, input.step.group.ranks));
    }
    Lines dtypes;
    if (request.parameter_dtype) {
        dtypes.push_back("param_dtype=" + torch_dtype(*request.parameter_dtype));
    }
    if (request.reduce_dtype) {
        dtypes.push_back("reduce_dtype=" + torch_dtype(*request.reduce_dtype));
    }
    if (!dtypes.empty()) {
        lines.push_back(fmt::format("policy = MixedPrecisionPolicy({})", fmt::join(dtypes, ", ")));
    }
}

// Lists of blocks in their order: all blocks of one list follow one another.
Lines lists_of_blocks(const Workload& workload) {
    Lines lists;
    for (const std::string& block : blocks_of(transformed(workload.gradients, &Gradient::name))) {
        if (lists.empty() || lists.back() != list_name(block)) {
            lists.push_back(list_name(block));
        }
    }
    return lists;
}

void add_calls(const ShardedInput& input, Lines& lines) {
    const ShardingRequest& request = input.request;
    const std::string options = reshard_argument(request) + arguments(input);
    if (!request.groups.empty()) {
        for (const std::vector<std::string>& modules : request.groups) {
            lines.push_back(fmt::format("fully_shard({}{})", modules_expression(modules), options));
        }
    } else if (request.layers_per_group > 0) {
        for (const std::string& list : lists_of_blocks(input.step.workload)) {
            if (request.layers_per_group == 1) {
                lines.push_back(fmt::format("for block in {}:", list));
                lines.push_back(fmt::format("    fully_shard(block{})", options));
                continue;
            }
            lines.push_back(
                fmt::format("for i in range(0, len({0}), {1}):", list, request.layers_per_group));
            lines.push_back(fmt::format("    fully_shard(list({0}[i:i + {1}]){2})", list,
                                        request.layers_per_group, options));
        }
    }
    lines.push_back(fmt::format("fully_shard(model{}{})",
                                request.reshard_root ? ", reshard_after_forward=True" : "",
                                arguments(input)));
}

// The first module of each call stands for its group.
std::string groups_expression(const ShardedInput& input) {
    const ShardingRequest& request = input.request;
    if (!request.groups.empty()) {
        Lines first;
        for (const std::vector<std::string>& modules : request.groups) {
            first.push_back(module_path(modules.front()));
        }
        return fmt::format("[{}]", fmt::join(first, ", "));
    }
    Lines lists = lists_of_blocks(input.step.workload);
    for (std::string& list : lists) {
        list = request.layers_per_group == 1
                   ? fmt::format("*{}", list)
                   : fmt::format("*{}[::{}]", list, request.layers_per_group);
    }
    return fmt::format("[{}]", fmt::join(lists, ", "));
}

void add_prefetching(const ShardedInput& input, Lines& lines) {
    const ShardingRequest& request = input.request;
    const bool has_groups = !request.groups.empty() || request.layers_per_group > 0;
    const bool prefetches = request.forward_prefetch > 0 || request.backward_prefetch > 1;
    if (has_groups && (prefetches || request.asynchronous_unshard)) {
        lines.push_back("groups = " + groups_expression(input));
    }
    if (request.asynchronous_unshard) {
        lines.emplace_back("model._set_unshard_async_op(True)");
    }
    if (!has_groups) {
        return;
    }
    if (request.forward_prefetch > 0) {
        lines.emplace_back("for i, group in enumerate(groups):");
        lines.push_back(
            fmt::format("    group.set_modules_to_forward_prefetch(groups[i + 1:i + {}])",
                        request.forward_prefetch + 1));
    }
    if (request.backward_prefetch > 1) {
        lines.emplace_back("for i, group in enumerate(groups):");
        lines.push_back(fmt::format(
            "    group.set_modules_to_backward_prefetch(groups[max(i - {}, 0):i][::-1])",
            request.backward_prefetch));
    }
}

void add_rest(const ShardingRequest& request, Lines& lines) {
    if (request.reduce_scatter_buffers > 1) {
        lines.push_back(fmt::format("model.set_reduce_scatter_max_input_buffers({})",
                                    request.reduce_scatter_buffers));
    }
    for (const auto& [is_off, call] :
         {std::pair(!request.reshard_after_backward, "set_reshard_after_backward"),
          std::pair(request.gradient_sync == MicroSteps::last, "set_requires_gradient_sync"),
          std::pair(request.all_reduce == MicroSteps::last, "set_requires_all_reduce")}) {
        if (is_off) {
            lines.push_back(
                fmt::format("model.{}(False)  # in all micro-steps but the last", call));
        }
    }
}

ShardedSetting pytorch(const ShardedInput& input) {
    ShardedSetting setting{"PyTorch", {}};
    add_preparations(input, setting.lines);
    add_calls(input, setting.lines);
    add_prefetching(input, setting.lines);
    add_rest(input.request, setting.lines);
    return setting;
}

ShardedSetting torchtitan(const ShardedInput& input) {
    const ShardingRequest& request = input.request;
    ShardedSetting setting{"torchtitan", {}};
    setting.lines = {
        "[parallelism]",
        fmt::format("data_parallel_replicate_degree = {}", input.step.replicas.group.ranks),
        fmt::format("data_parallel_shard_degree = {}", input.step.group.ranks),
        fmt::format("fsdp_reshard_after_forward = \"{}\"",
                    request.reshard_after_forward ? "always" : "never")};
    if (request.forward_prefetch > 0 || request.backward_prefetch > 1) {
        setting.note =
            "its explicit prefetching is of mixtures of experts alone: call "
            "set_modules_to_forward_prefetch as above";
    }
    return setting;
}

ShardedSetting accelerate(const ShardedInput& input) {
    return {"Accelerate",
            {"fsdp_config:", "  fsdp_version: 2", "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
             "  fsdp_transformer_layer_cls_to_wrap: the class of a block",
             fmt::format("  fsdp_reshard_after_forward: {}",
                         input.request.reshard_after_forward ? "true" : "false")}};
}

ShardedSetting deepspeed(const Zero3Settings& zero3) {
    return {
        "DeepSpeed",
        {"\"zero_optimization\": {", "  \"stage\": 3,",
         fmt::format("  \"stage3_prefetch_bucket_size\": {},", zero3.prefetch_elements),
         fmt::format("  \"stage3_param_persistence_threshold\": {},", zero3.persistence_threshold),
         fmt::format("  \"stage3_max_live_parameters\": {},", zero3.max_live_parameters),
         fmt::format("  \"stage3_max_reuse_distance\": {},", zero3.max_reuse_distance),
         fmt::format("  \"reduce_bucket_size\": {}", zero3.reduce_bucket_elements), "}"}};
}

// --- activation checkpointing ---

ShardedSetting recompute_in_pytorch(const Recompute& recompute, const Workload& workload) {
    const bool keeps_operators = recompute.keeps == CheckpointKeeps::operators;
    const std::string arguments = recompute.reentrant ? ", checkpoint_impl=CheckpointImpl.REENTRANT"
                                  : keeps_operators   ? ", context_fn=keep_operators"
                                                      : "";
    ShardedSetting setting{"PyTorch", {}};
    std::int64_t before = 0;  // blocks of earlier lists
    const Lines blocks = blocks_of(transformed(workload.gradients, &Gradient::name));
    for (const std::string& list : lists_of_blocks(workload)) {
        const auto count = std::ranges::count(blocks, list, list_name);
        const std::int64_t chosen =
            std::clamp<std::int64_t>(recompute.blocks.value_or(before + count) - before, 0, count);
        const std::string which =
            recompute.every == 1
                ? fmt::format("range({})", chosen == count ? fmt::format("len({})", list)
                                                           : std::to_string(chosen))
                : fmt::format("range({}, {}, {})", recompute.every - 1 - before % recompute.every,
                              chosen, recompute.every);
        if (chosen > recompute.every - 1 - before % recompute.every) {
            setting.lines.push_back(fmt::format("for i in {}:", which));
            setting.lines.push_back(
                fmt::format("    {0}[i] = checkpoint_wrapper({0}[i]{1})", list, arguments));
        }
        before += count;
    }
    if (keeps_operators) {
        setting.note =
            "keep_operators is functools.partial(create_selective_checkpoint_contexts, policy); "
            "the policy keeps attention and every other mm, or addmm of layers with a bias";
    }
    return setting;
}

ShardedSetting recompute_in_torchtitan(const Recompute& recompute) {
    const bool keeps_operators = recompute.keeps == CheckpointKeeps::operators;
    ShardedSetting setting{"torchtitan", {"[activation_checkpoint]"}};
    if (recompute == Recompute{}) {
        setting.lines.emplace_back("mode = \"full\"");
    } else {
        setting.lines.emplace_back("mode = \"selective\"");
        setting.lines.push_back(
            fmt::format("selective_ac_option = \"{}\"",
                        keeps_operators ? "op" : std::to_string(recompute.every)));
    }
    return setting;
}

// For a model of Transformers.
constexpr const char* enable_checkpointing =
    "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})";

// The lines at a place; empty: it cannot say so.
ShardedSetting recompute_at(const std::string& place, const Recompute& recompute,
                            const Workload& workload) {
    const bool is_full = recompute == Recompute{};
    const bool has_mode = !recompute.reentrant && !recompute.blocks &&
                          (recompute.keeps == CheckpointKeeps::inputs || recompute.every == 1);
    if (place == "PyTorch") {
        return recompute_in_pytorch(recompute, workload);
    }
    if (place == "torchtitan" && has_mode) {
        return recompute_in_torchtitan(recompute);
    }
    if (place == "Accelerate" && is_full) {
        return {place, {"fsdp_config:", "  fsdp_activation_checkpointing: true"}};
    }
    if ((place == "Transformers" || place == "DeepSpeed") && is_full) {
        return {place, {enable_checkpointing}, "of a model of Transformers"};
    }
    return {};
}

}  // namespace

std::vector<ShardedSetting> recompute_settings(const Recompute& recompute, const Workload& workload,
                                               const std::vector<ShardedSetting>& sharding) {
    std::vector<ShardedSetting> settings;
    const std::vector<ShardedSetting> alone{{"PyTorch", {}}, {"Transformers", {}}};
    for (const ShardedSetting& then : sharding.empty() ? alone : sharding) {
        ShardedSetting setting = recompute_at(then.place, recompute, workload);
        if (setting.lines.empty()) {
            continue;
        }
        for (const std::string& line : then.lines) {
            const bool is_same_section = line == setting.lines.front() && line.ends_with(':');
            if (!is_same_section) {
                setting.lines.push_back(line);
            }
        }
        setting.note += (setting.note.empty() || then.note.empty() ? "" : "; ") + then.note;
        settings.push_back(std::move(setting));
    }
    return settings;
}

std::vector<ShardedSetting> sharded_settings(const ShardedInput& input) {
    if (input.request.strategy == ShardedStrategy::zero3) {
        return {deepspeed(input.request.zero3)};
    }
    std::vector<ShardedSetting> settings{pytorch(input)};
    // Wrappers make a group of each block of a class.
    if (input.request.groups.empty() && input.request.layers_per_group == 1) {
        settings.push_back(torchtitan(input));
        if (input.step.replicas.group.ranks == 1) {
            settings.push_back(accelerate(input));
        }
    }
    return settings;
}

}  // namespace bucketwise
