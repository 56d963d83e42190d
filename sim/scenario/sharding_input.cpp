#include "sim/scenario/sharding_input.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/invariant.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/scenario/pytorch_version.h"
#include "sim/scenario/workload_input.h"
#include "sim/sharding/shard_plan.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_layers_together = 10'000;
constexpr std::size_t most_shard_groups = 10'000;
constexpr std::size_t most_modules = 10'000;
constexpr std::int64_t most_ahead = 1'000;
constexpr std::int64_t most_sharded_elements = std::int64_t{1} << 50;

std::vector<std::string> read_modules(const JsonPlace& place) {
    return transformed(read_array(place, most_modules), [](const JsonPlace& module) {
        std::string name = read_string(module);
        if (name.empty()) {
            module.fail("a module's name; what no group names is the root's");
        }
        return name;
    });
}

void read_dtypes(const JsonObject& object, ShardingRequest& request) {
    const auto read = [&](std::string_view key, std::optional<DType>& dtype) {
        if (const auto place = object.find(key)) {
            dtype = read_choice(*place, every<DType>);
        }
    };
    read("parameter_dtype", request.parameter_dtype);
    read("reduce_dtype", request.reduce_dtype);
}

void read_groups(const JsonObject& object, ShardingRequest& request) {
    object.exclusive("groups", "layers_per_group");
    object.read_optional("layers_per_group", request.layers_per_group, read_integer, 0,
                         most_layers_together);
    object.read_optional("groups", request.groups, [](const JsonPlace& place) {
        return transformed(read_array(place, most_shard_groups), read_modules);
    });
}

ShardingRequest read_fsdp(const JsonPlace& place, ShardedStrategy strategy) {
    const JsonObject object(
        place, {"layers_per_group", "groups", "reshard_after_forward", "reshard_root",
                "reshard_ranks", "forward_prefetch", "backward_prefetch", "parameter_dtype",
                "reduce_dtype", "asynchronous_unshard", "gradient_sync", "reduce_scatter_buffers",
                "reshard_after_backward", "shard_ranks", "all_reduce"});
    for (const char* key : {"shard_ranks", "all_reduce"}) {
        if (const auto found = object.find(key); found && strategy != ShardedStrategy::hsdp) {
            found->fail("the strategy hsdp beside it", std::string(name_of(strategy)));
        }
    }
    ShardingRequest request;
    request.strategy = strategy;
    read_groups(object, request);
    object.read_optional("reshard_after_forward", request.reshard_after_forward, read_boolean);
    object.read_optional("reshard_root", request.reshard_root, read_boolean);
    if (const auto ranks = object.find("reshard_ranks")) {
        request.reshard_ranks = read_integer(*ranks, 2, most_sharded_elements);
    }
    object.read_optional("forward_prefetch", request.forward_prefetch, read_integer, 0, most_ahead);
    object.read_optional("backward_prefetch", request.backward_prefetch, read_integer, 1,
                         most_ahead);
    object.read_optional("asynchronous_unshard", request.asynchronous_unshard, read_boolean);
    read_dtypes(object, request);
    object.read_optional("reduce_scatter_buffers", request.reduce_scatter_buffers, read_integer, 1,
                         most_ahead);
    object.read_optional_choice("gradient_sync", request.gradient_sync, every<MicroSteps>);
    object.read_optional("reshard_after_backward", request.reshard_after_backward, read_boolean);
    object.read_optional_choice("all_reduce", request.all_reduce, every<MicroSteps>);
    if (const auto ranks = object.find("shard_ranks")) {
        request.shard_ranks = read_integer(*ranks, 1, most_sharded_elements);
    }
    return request;
}

ShardingRequest read_zero3(const JsonPlace& place) {
    const JsonObject object(
        place, {"prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters",
                "max_reuse_distance", "reduce_bucket_size"});
    ShardingRequest request;
    request.strategy = ShardedStrategy::zero3;
    const auto elements = [&](std::string_view key, std::int64_t& target) {
        object.read_optional(key, target, read_integer, 0, most_sharded_elements);
    };
    elements("prefetch_bucket_size", request.zero3.prefetch_elements);
    elements("param_persistence_threshold", request.zero3.persistence_threshold);
    elements("max_live_parameters", request.zero3.max_live_parameters);
    elements("max_reuse_distance", request.zero3.max_reuse_distance);
    elements("reduce_bucket_size", request.zero3.reduce_bucket_elements);
    return request;
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
    const JsonObject object(place, sync_keys);
    for (const std::string_view key : sync_keys) {
        const bool is_for_it = key == "strategy" || key == "sharding" ||
                               (key == "pytorch_version" && *strategy != ShardedStrategy::zero3);
        if (const auto found = object.find(key); found && !is_for_it) {
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
    return strategy == ShardedStrategy::zero3 ? read_zero3(place) : read_fsdp(place, strategy);
}

Json sharding_json(const ShardingRequest& request) {
    if (request.strategy == ShardedStrategy::zero3) {
        return {{"prefetch_bucket_size", request.zero3.prefetch_elements},
                {"param_persistence_threshold", request.zero3.persistence_threshold},
                {"max_live_parameters", request.zero3.max_live_parameters},
                {"max_reuse_distance", request.zero3.max_reuse_distance},
                {"reduce_bucket_size", request.zero3.reduce_bucket_elements}};
    }
    Json json;
    if (request.groups.empty()) {
        json["layers_per_group"] = request.layers_per_group;
    } else {
        json["groups"] = request.groups;
    }
    json["reshard_after_forward"] = request.reshard_after_forward;
    json["reshard_root"] = request.reshard_root;
    add_optional(json, "reshard_ranks", request.reshard_ranks);
    json["forward_prefetch"] = request.forward_prefetch;
    json["backward_prefetch"] = request.backward_prefetch;
    json["asynchronous_unshard"] = request.asynchronous_unshard;
    const ShardingRequest untold;
    add_optional(json, "parameter_dtype", request.parameter_dtype, name_of<DType>);
    add_optional(json, "reduce_dtype", request.reduce_dtype, name_of<DType>);
    add_if(request.reduce_scatter_buffers != untold.reduce_scatter_buffers, json,
           "reduce_scatter_buffers", request.reduce_scatter_buffers);
    add_if(request.gradient_sync != untold.gradient_sync, json, "gradient_sync",
           name_of(request.gradient_sync));
    add_if(request.reshard_after_backward != untold.reshard_after_backward, json,
           "reshard_after_backward", request.reshard_after_backward);
    add_optional(json, "shard_ranks", request.shard_ranks);
    add_if(request.all_reduce != untold.all_reduce, json, "all_reduce",
           name_of(request.all_reduce));
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
    try {
        static_cast<void>(make_shard_plan(step_input(scenario).workload, *scenario.sharding,
                                          shard_group_of(scenario).ranks));
    } catch (const InputError& error) {
        const bool named = place.value->contains("sharding");
        throw InputError(place.file, named ? below(place, "sharding").pointer : place.pointer,
                         error.expected(), error.got());
    }
}

}  // namespace bucketwise
