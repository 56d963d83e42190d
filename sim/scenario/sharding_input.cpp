#include "sim/scenario/sharding_input.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/scenario/sync_input.h"
#include "sim/scenario/workload_input.h"
#include "sim/sharding/shard_plan.h"
#include "sim/workload/modules.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_layers_together = 10'000;
constexpr std::size_t most_shard_groups = 10'000;
constexpr std::size_t most_modules = 10'000;
constexpr std::int64_t most_ahead = 1'000;
constexpr std::int64_t most_sharded_elements = std::int64_t{1} << 50;

template <auto Member>
KeyUse<ShardingRequest> zero3_elements() {
    return field_in<ShardingRequest>(
        [](auto& request) -> auto& { return request.zero3.*Member; },
        as::integer(0, most_sharded_elements));
}

const JsonTable<ShardingRequest>& zero3_keys() {
    using Zero3 = Zero3Settings;
    static const JsonTable<ShardingRequest> table{
        "sharding of zero3",
        "Settings of DeepSpeed's ZeRO stage 3, in elements",
        {{"prefetch_bucket_size", zero3_elements<&Zero3::prefetch_elements>(), "50,000,000",
          "`stage3_prefetch_bucket_size`", true},
         {"param_persistence_threshold", zero3_elements<&Zero3::persistence_threshold>(), "100,000",
          "`stage3_param_persistence_threshold`", true},
         {"max_live_parameters", zero3_elements<&Zero3::max_live_parameters>(), "1,000,000,000",
          "`stage3_max_live_parameters`", true},
         {"max_reuse_distance", zero3_elements<&Zero3::max_reuse_distance>(), "1,000,000,000",
          "`stage3_max_reuse_distance`", true},
         {"reduce_bucket_size", zero3_elements<&Zero3::reduce_bucket_elements>(), "500,000,000",
          "`reduce_bucket_size`", true}}};
    return table;
}

// FSDP2's keys. `all` holds hsdp's as well.
JsonTable<ShardingRequest> fsdp_table(std::string_view name, bool all) {
    using Request = ShardingRequest;
    const auto modules = as::list(as::text(), most_modules);
    std::vector<JsonKey<Request>> keys{
        {"layers_per_group",
         field(&Request::layers_per_group, as::integer(0, most_layers_together)), "1",
         "how many neighbouring blocks (`layers.0`, `layers.1`, ...: names up to their first "
         "number) one `fully_shard` call takes; what is in no block is the root's. 0: all is",
         true},
        {"groups", field(&Request::groups, as::list(modules, most_shard_groups)), "none",
         "instead of `layers_per_group`: the modules of each `fully_shard` call, by name; what is "
         "in none of them is the root's"},
        {"reshard_after_forward", field(&Request::reshard_after_forward, as::boolean()), "true",
         "whether a group's parameters are freed after its forward, and gathered again in backward",
         true},
        {"reshard_root", field(&Request::reshard_root, as::boolean()), "false",
         "whether the root's are freed as well: PyTorch keeps them unless it is set on the root",
         true},
        {"reshard_ranks", field(&Request::reshard_ranks, as::integer(2, most_sharded_elements)),
         "none",
         "parameters are kept among so many ranks after forward (`reshard_after_forward=N`); "
         "divides the number of ranks that share parameters"},
        {"forward_prefetch", field(&Request::forward_prefetch, as::integer(0, most_ahead)), "0",
         "groups gathered ahead in forward (`set_modules_to_forward_prefetch`); 0 leaves it to a "
         "host that runs ahead",
         true},
        {"backward_prefetch", field(&Request::backward_prefetch, as::integer(1, most_ahead)), "1",
         "groups gathered ahead in backward; PyTorch's default is the next one", true},
        {"asynchronous_unshard", field(&Request::asynchronous_unshard, as::boolean()), "false",
         "`_set_unshard_async_op`: on a CPU the only way to overlap all-gathers", true},
        {"parameter_dtype", field(&Request::parameter_dtype, as::one_of<DType>()),
         "the parameters' own", "`param_dtype` of `MixedPrecisionPolicy`"},
        {"reduce_dtype", field(&Request::reduce_dtype, as::one_of<DType>()),
         "decided by `pytorch_version`", "`reduce_dtype` of `MixedPrecisionPolicy`"},
        {"float8_all_gather", field(&Request::float8_all_gather, as::boolean()), "false",
         "weights that multiply in float8 are cast on the shard and gathered in one byte per "
         "element (torchao's `enable_fsdp_float8_all_gather`); their scales follow from one small "
         "all-reduce after the optimizer (`precompute_float8_dynamic_scale_for_fsdp`). Only with "
         "the arithmetic `float8_tensorwise`"},
        {"reduce_scatter_buffers",
         field(&Request::reduce_scatter_buffers, as::integer(1, most_ahead)), "1",
         "inputs of reduce-scatters that may be held (`set_reduce_scatter_max_input_buffers`)"},
        {"gradient_sync", field(&Request::gradient_sync, as::one_of<MicroSteps>()),
         "`every_micro_step`",
         "which micro-steps reduce gradients; `last_micro_step`: "
         "`set_requires_gradient_sync(False)` in all others"},
        {"reshard_after_backward", field(&Request::reshard_after_backward, as::boolean()), "true",
         "false: `set_reshard_after_backward(False)` in all micro-steps but the last"},
        {"shard_ranks", field(&Request::shard_ranks, as::integer(1, most_sharded_elements)),
         "those of a node", "hsdp: ranks that share parameters; divides `ranks`"},
        {"all_reduce", field(&Request::all_reduce, as::one_of<MicroSteps>()), "`every_micro_step`",
         "hsdp: which micro-steps reduce between replicas; `last_micro_step`: "
         "`set_requires_all_reduce(False)` in all others"}};
    std::vector<Json> conditions;
    if (!all) {
        conditions.push_back({{"properties", {{"shard_ranks", false}, {"all_reduce", false}}}});
    }
    return {name,
            "Settings of PyTorch's fully_shard",
            std::move(keys),
            {exclusive("groups", "layers_per_group")},
            std::move(conditions)};
}

const JsonTable<ShardingRequest>& sharding_keys(ShardedStrategy strategy) {
    static const JsonTable<ShardingRequest> fsdp = fsdp_table("sharding of fsdp", false);
    static const JsonTable<ShardingRequest> hsdp = fsdp_table("sharding", true);
    switch (strategy) {
        case ShardedStrategy::fsdp:
            return fsdp;
        case ShardedStrategy::hsdp:
            return hsdp;
        case ShardedStrategy::zero3:
            break;
    }
    return zero3_keys();
}

JsonPlace below(const JsonPlace& place, const std::string& key) {
    return {&place.value->at(key), place.file, place.pointer + "/" + key};
}

// The key of the object sharding, where it is there.
[[noreturn]] void refuse(const JsonPlace& sync, const std::string& key, const std::string& expected,
                         std::int64_t got) {
    throw InputError(sync.file, fmt::format("{}/sharding/{}", sync.pointer, key), expected,
                     std::to_string(got));
}

void check_ranks(const JsonPlace& sync, const Scenario& scenario) {
    const ShardingRequest& request = *scenario.sharding;
    const std::int64_t ranks = scenario.group.ranks;
    const std::int64_t sharing = shard_group_of(scenario).ranks;
    if (ranks % sharing != 0) {
        refuse(sync, "shard_ranks", fmt::format("a number that divides ranks ({})", ranks),
               sharing);
    }
    if (request.reshard_ranks && sharing % *request.reshard_ranks != 0) {
        refuse(sync, "reshard_ranks",
               fmt::format("a number that divides the {} ranks that share parameters", sharing),
               *request.reshard_ranks);
    }
}

void check_float8(const JsonPlace& sync, const Scenario& scenario) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    const bool is_there = model != nullptr && model->arithmetic == Arithmetic::float8_tensorwise;
    if (scenario.sharding->float8_all_gather && !is_there) {
        throw InputError(sync.file, sync.pointer + "/sharding/float8_all_gather",
                         "false, or a workload whose arithmetic is float8_tensorwise",
                         model == nullptr ? "gradients" : std::string(name_of(model->arithmetic)));
    }
}

// A hook within a compiled block would cut its graph in pieces.
void check_compiled(const JsonPlace& sync, const Scenario& scenario, const Workload& workload) {
    if (!joint_computing(scenario).compiles_blocks) {
        return;
    }
    const std::vector<std::string> blocks =
        blocks_of(transformed(workload.gradients, &Gradient::name));
    for (const std::vector<std::string>& group : scenario.sharding->groups) {
        for (const std::string& module : group) {
            const auto around = std::ranges::find_if(blocks, [&](const std::string& block) {
                return module != block && belongs_to(module, block);
            });
            if (around != blocks.end()) {
                throw InputError(
                    sync.file, sync.pointer + "/sharding/groups",
                    fmt::format("none within {}, which is compiled as a whole", *around), module);
            }
        }
    }
}

}  // namespace

std::optional<ShardingRequest> read_sharding(const JsonPlace& place) {
    if (!place.value->is_object() || !place.value->contains("strategy")) {
        return std::nullopt;
    }
    const Json& named = place.value->at("strategy");
    const auto strategy = std::ranges::find_if(every<ShardedStrategy>, [&](ShardedStrategy one) {
        return named.is_string() && is_called(one, named.get_ref<const std::string&>());
    });
    if (strategy == every<ShardedStrategy>.end()) {
        return std::nullopt;
    }
    const JsonObject object = sync_table().open(place);
    for (const KeyText& row : sync_table().text().keys) {
        const bool is_for_it =
            row.key == "strategy" || row.key == "sharding" ||
            (row.key == "pytorch_version" && *strategy != ShardedStrategy::zero3);
        if (const auto found = object.find(row.key); found && !is_for_it) {
            found->fail("a strategy that has it", std::string(name_of(*strategy)));
        }
    }
    ShardingRequest request;
    request.strategy = *strategy;
    object.read_optional("sharding", request, [&](const JsonPlace& sharding) {
        return read_sharding_settings(sharding, *strategy);
    });
    object.read_optional("pytorch_version", request.reduces_in_own_dtype,
                         [](const JsonPlace& version) {
                             return read_pytorch_version(version) >= PytorchVersion{2, 15};
                         });
    return request;
}

ShardingRequest read_sharding_settings(const JsonPlace& place, ShardedStrategy strategy) {
    const JsonTable<ShardingRequest>& keys = sharding_keys(strategy);
    const JsonObject object = keys.open(place);
    if (strategy == ShardedStrategy::fsdp) {
        for (const char* key : {"shard_ranks", "all_reduce"}) {
            use_present(object, key, [](const JsonPlace& found) {
                found.fail("the strategy hsdp beside it", "fsdp");
            });
        }
    }
    ShardingRequest request;
    request.strategy = strategy;
    keys.read(object, request);
    return request;
}

JsonType<ShardingRequest> sharding_type(ShardedStrategy strategy) {
    return sharding_keys(strategy).type();
}

Json sharding_json(const ShardingRequest& request) {
    Json json = sharding_keys(request.strategy).write(request);
    if (!request.groups.empty()) {
        json.erase("layers_per_group");
    }
    return json;
}

void check_shardable(const std::string& file, const Scenario& scenario) {
    const auto at_root = [&](const std::string& pointer, const std::string& expected,
                             const std::string& got) {
        throw InputError(file, pointer, expected, got);
    };
    if (scenario.step.cuda_graph) {
        at_root("/step/cuda_graph", "no CUDA graph of a step whose parameters are gathered",
                "true");
    }
    if (scenario.sync.batch_norm != BatchNormSync::local) {
        at_root("/sync/batch_norm", "statistics of each rank's own in a step that is sharded",
                std::string(name_of(scenario.sync.batch_norm)));
    }
    const auto* listed = std::get_if<GradientWorkload>(&scenario.workload);
    if (listed != nullptr && listed->operations && !listed->operations->side_streams.empty()) {
        at_root("/workload", "operations on the compute stream alone in a step that is sharded",
                "others");
    }
    if (listed == nullptr) {
        return;
    }
    for (std::size_t i = 0; i < listed->gradients.size(); ++i) {
        if (listed->gradients[i].gradient.sparse) {
            at_root(fmt::format("/workload/gradients/{}/sparse", i),
                    "dense gradients, which alone can be reduced and scattered", "a sparse one");
        }
    }
}

void check_sharding(const JsonPlace& place, const Scenario& scenario) {
    invariant(scenario.sharding.has_value(), "the scenario shards");
    check_ranks(place, scenario);
    check_shardable(place.file, scenario);
    check_float8(place, scenario);
    const Workload workload = step_input(scenario).workload;
    check_compiled(place, scenario, workload);
    try {
        static_cast<void>(
            make_shard_plan(workload, *scenario.sharding, shard_group_of(scenario).ranks));
    } catch (const InputError& error) {
        const bool named = place.value->contains("sharding");
        throw InputError(place.file, named ? below(place, "sharding").pointer : place.pointer,
                         error.expected(), error.got());
    }
}

}  // namespace bucketwise
