// Reading a scenario file.
#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "sim/base/json_input.h"
#include "sim/base/transformed.h"
#include "sim/link/link_input.h"
#include "sim/link/link_presets.h"
#include "sim/link/link_topology.h"
#include "sim/scenario/pytorch_version.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sharding_input.h"
#include "sim/scenario/workload_input.h"

namespace bucketwise {
namespace {

// Generous for anything that exists, and small enough that no product of them overflows.
constexpr std::int64_t most_ranks = 1'000'000;
constexpr std::size_t most_stragglers = 1024;
constexpr std::size_t most_slowdowns = 32;  // different ones: each is simulated on its own
constexpr std::int64_t most_micro_steps = 10'000;
constexpr std::int64_t most_broadcasting_ranks = 1'024;
constexpr std::int64_t longest_launch_queue = 1'000'000;
constexpr double largest_slowdown_read = 100;
constexpr std::array<LaunchRule, 3> all_launch_rules{LaunchRule::in_order, LaunchRule::as_filled,
                                                     LaunchRule::after_backward};

// Presets of one node, with a topology or a ring.
void check_most_ranks(const JsonObject& object, const Scenario& scenario) {
    const LinkPreset* preset = find_preset(scenario.link.preset);
    const auto most = preset != nullptr ? most_ranks_of(*preset) : std::nullopt;
    if (most && scenario.group.ranks > *most) {
        object.at("ranks").fail(
            fmt::format("at most {} ranks on one node with the preset {}; of several nodes are {}",
                        *most, preset->name, larger_presets(*preset)));
    }
}

// The topology says how many ranks a node has. With a preset, which the scenario's own link may
// have made way for, the same number is no contradiction.
void place_on_topology(const JsonObject& object, Scenario& scenario) {
    const auto per_node = object.find("ranks_per_node");
    const bool as_preset =
        !scenario.link.preset.empty() && scenario.link.topology->regular &&
        scenario.group.ranks_per_node ==
            std::min(scenario.link.topology->regular->node.gpus, scenario.group.ranks);
    if (per_node && !as_preset) {
        per_node->fail("no ranks_per_node beside a topology, which says it");
    }
    const JsonPlace link = object.at("link");
    if (const auto fault = prepare_topology(scenario.link, scenario.group.ranks)) {
        if (!scenario.link.preset.empty()) {
            const auto& regular = scenario.link.topology->regular;
            const bool is_odd = regular && scenario.group.ranks % regular->node.gpus != 0;
            object.at("ranks").fail(fmt::format(
                "{} with the preset {}",
                is_odd ? fmt::format("at most {0} ranks, a node's, or a multiple of {0}",
                                     regular->node.gpus)
                       : fault->expected,
                scenario.link.preset));
        }
        const bool inlined = link.value->is_object();
        const std::string file =
            inlined ? link.file : path_beside(link.file, link.value->get<std::string>());
        throw InputError(file, (inlined ? link.pointer : "") + fault->pointer, fault->expected,
                         fault->got);
    }
}

std::vector<Straggler> read_stragglers(const JsonPlace& place, std::int64_t ranks) {
    std::vector<Straggler> stragglers;
    std::set<std::int64_t> taken;
    std::set<double> slowdowns;
    for (const JsonPlace& element : read_array(place, most_stragglers)) {
        const JsonObject object(element, {"rank", "compute_slowdown"});
        const JsonPlace rank = object.at("rank");
        Straggler straggler;
        straggler.rank = read_integer(rank, 0, most_ranks - 1);
        if (straggler.rank >= ranks) {
            rank.fail(fmt::format("a rank below the number of ranks ({})", ranks));
        }
        if (!taken.insert(straggler.rank).second) {
            rank.fail("a rank that no other straggler is");
        }
        straggler.compute_slowdown =
            read_number(object.at("compute_slowdown"), {1, largest_slowdown_read});
        slowdowns.insert(straggler.compute_slowdown);
        stragglers.push_back(straggler);
    }
    if (slowdowns.size() > most_slowdowns) {
        place.fail(fmt::format("at most {} different slowdowns", most_slowdowns),
                   std::to_string(slowdowns.size()));
    }
    return stragglers;
}

void read_cluster(const JsonPlace& place, const FileReader& read_file, Scenario& scenario) {
    const JsonObject object(place, {"ranks", "ranks_per_node", "link", "stragglers"});
    RankGroup& group = scenario.group;
    group.ranks = group.ranks_per_node = read_integer(object.at("ranks"), 1, most_ranks);
    if (const auto per_node = object.find("ranks_per_node")) {
        group.ranks_per_node = read_integer(*per_node, 1, group.ranks);
        if (group.ranks % group.ranks_per_node != 0) {
            per_node->fail(fmt::format("a number that divides ranks ({})", group.ranks));
        }
    }
    scenario.stragglers.clear();
    object.read_optional("stragglers", scenario.stragglers, read_stragglers, group.ranks);
    scenario.link = read_link(object.at("link"), read_file);
    check_most_ranks(object, scenario);
    if (scenario.link.topology) {
        place_on_topology(object, scenario);
    } else if (scenario.link.algorithm == Algorithm::hierarchical) {
        static_cast<void>(object.at("ranks_per_node"));  // required: the link asks for it
    }
}

// An explicit cap is also the first bucket's, as from PyTorch 2.4 on.
bool read_explicit_cap_sets_first(const JsonPlace& place) {
    return read_pytorch_version(place) >= PytorchVersion{2, 4};
}

FrameworkVersion read_framework_version(const JsonPlace& place,
                                        const std::optional<SettingPlace>& origin) {
    const auto version = version_from(read_text(place, 32));
    if (!version) {
        place.fail("a version such as \"0.14.3\"");
    }
    const auto framework = origin ? framework_at(*origin) : std::nullopt;
    if (framework && *version < oldest_version(*framework)) {
        place.fail(fmt::format("{} {} or later", name_of(*framework),
                               version_text(oldest_version(*framework))));
    }
    return *version;
}

void read_caps(const JsonObject& object, SyncRequest& sync) {
    object.exclusive("bucket_cap_mib", "bucket_cap_mib_list");
    object.exclusive("first_bucket_mib", "bucket_cap_mib_list");
    object.read_optional("bucket_cap_mib", sync.bucket_cap, read_cap_mib);
    object.read_optional("first_bucket_mib", sync.first_bucket, read_cap_mib);
    object.read_optional("bucket_cap_mib_list", sync.bucket_cap_list, [](const JsonPlace& list) {
        return transformed(read_array(list, most_gradients), read_cap_mib);
    });
}

// DDPOptimizer asserts it of DistributedDataParallel's bucket_bytes_cap, of a list the largest.
void check_compiled(const JsonObject& object, const SyncRequest& sync) {
    const std::optional<PieceLimits> pieces = settings_for(sync).policy.pieces;
    if (pieces && pieces->is_refused()) {
        const char* const key =
            sync.bucket_cap_list.empty() ? "bucket_cap_mib" : "bucket_cap_mib_list";
        object.at(key).fail("1 MiB or more with torch.compile (compiled), which refuses less",
                            fmt::format("{:g}", to_mib(pieces->cap)));
    }
}

// Those that shard have been looked for.
Strategy read_strategy(const JsonPlace& place) {
    std::vector<std::string_view> known(names_of<Strategy>.begin(), names_of<Strategy>.end());
    std::ranges::copy(names_of<ShardedStrategy>, std::back_inserter(known));
    for (const Strategy strategy : every<Strategy>) {
        if (place.value->is_string() && is_called(strategy, place.value->get<std::string>())) {
            return strategy;
        }
    }
    place.fail_name(fmt::format("one of {}", fmt::join(known, ", ")), known);
}

SyncRequest read_sync(const JsonPlace& place) {
    const JsonObject object(place, sync_keys);
    SyncRequest sync;
    sync.strategy = read_strategy(object.at("strategy"));
    if (const auto sharding = object.find("sharding")) {
        sharding->fail("a strategy that shards beside it", std::string(name_of(sync.strategy)));
    }
    read_caps(object, sync);
    object.read_optional_choice("closing", sync.closing, every<Closing>);
    object.read_optional_choice("order", sync.order, every<Order>);
    object.read_optional_choice("launch", sync.launch, all_launch_rules);
    object.read_optional("views", sync.views, read_boolean);
    object.exclusive("fused_copies", "batched_grad_copy");
    object.read_optional("fused_copies", sync.fused_copies, read_boolean);
    object.read_optional("batched_grad_copy", sync.batched_grad_copy, read_boolean);
    object.read_optional("static_graph", sync.static_graph, read_boolean);
    object.read_optional("compiled", sync.compiled, read_boolean);
    object.read_optional_choice("comm_hook", sync.comm_hook, every<CommHook>);
    object.read_optional("pytorch_version", sync.explicit_cap_sets_first,
                         read_explicit_cap_sets_first);
    object.read_optional("find_unused_parameters", sync.find_unused_parameters, read_boolean);
    object.read_optional("broadcast_buffers", sync.broadcast_buffers, read_boolean);
    object.read_optional_choice("batch_norm", sync.batch_norm, every<BatchNormSync>);
    object.read_optional_choice("sharded_optimizer", sync.sharded_optimizer,
                                every<ShardedOptimizer>);
    object.read_optional_choice("framework", sync.framework, every<SettingPlace>);
    object.read_optional("framework_version", sync.framework_version, read_framework_version,
                         sync.framework);
    check_compiled(object, sync);
    return sync;
}

// Where operations are listed, they say what the optimizer takes and where the host waits.
void refuse_beside_operations(const JsonObject& object, const Scenario& scenario) {
    const auto* workload = std::get_if<GradientWorkload>(&scenario.workload);
    if (workload == nullptr || !workload->operations) {
        return;
    }
    const ListedOperations& operations = *workload->operations;
    const bool lists_optimizer = !operations.optimizer.empty();
    for (const char* key :
         {"optimizer_ms", "optimizer", "optimizer_kernels", "optimizer_launch_ms"}) {
        if (const auto optimizer = object.find(key); optimizer && lists_optimizer) {
            optimizer->fail("either this or workload/optimizer_operations", "both");
        }
    }
    const auto graph = object.find("cuda_graph");
    if (!graph || !read_boolean(*graph)) {
        return;
    }
    for (const auto* pass : {&operations.forward, &operations.backward, &operations.optimizer}) {
        if (std::ranges::any_of(*pass, &TimedOperation::host_waits)) {
            graph->fail("no CUDA graph of operations that the host waits for (host_waits)", "true");
        }
    }
    if (!operations.side_streams.empty()) {
        graph->fail("no CUDA graph of operations on other streams (stream)", "true");
    }
}

StepRequest read_step(const JsonPlace& place, const Scenario& scenario) {
    const JsonObject object(
        place, {"accumulation", "optimizer_ms", "optimizer", "optimizer_kernels",
                "optimizer_launch_ms", "cuda_graph", "sync_each_step", "launch_queue"});
    object.exclusive("optimizer_ms", "optimizer");
    refuse_beside_operations(object, scenario);
    StepRequest step;
    object.read_optional("accumulation", step.accumulation, read_integer, 1, most_micro_steps);
    object.read_optional("optimizer_ms", step.optimizer, read_duration_ms);
    const Device* device = device_of(scenario);
    const bool host_is_device = device != nullptr && device->host_is_device;
    if (const auto optimizer = object.find("optimizer")) {
        step.optimizer = read_choice(*optimizer, every<Optimizer>);
        if (device == nullptr) {
            optimizer->fail("a workload with a device, or optimizer_ms", "a workload without one");
        }
    }
    if (const auto kernels = object.find("optimizer_kernels")) {
        step.optimizer_kernels = read_choice(*kernels, every<OptimizerKernels>);
        if (std::holds_alternative<Duration>(step.optimizer)) {
            kernels->fail("an optimizer", "kernels of none");
        }
    }
    if (const auto launch = object.find("optimizer_launch_ms")) {
        step.optimizer_launch = read_duration_ms(*launch);
        if (host_is_device) {
            launch->fail("no launches with a device that is its own host (host_is_device)",
                         "a time for them");
        }
    }
    if (const auto graph = object.find("cuda_graph")) {
        step.cuda_graph = read_boolean(*graph);
        if (step.cuda_graph && host_is_device) {
            graph->fail("no CUDA graph with a device that is its own host (host_is_device)",
                        "true");
        }
    }
    object.read_optional("sync_each_step", step.sync_each_step, read_boolean);
    object.read_optional("launch_queue", step.launch_queue, read_integer, 1, longest_launch_queue);
    if (const auto queue = object.find("launch_queue"); queue && host_is_device) {
        queue->fail("no launches with a device that is its own host (host_is_device)",
                    "a queue for them");
    }
    return step;
}

Variation read_variation(const JsonPlace& place) {
    const JsonObject object(place, {"seed", "compute_spread", "operation_spread",
                                    "collective_spread", "compute_standard_error", "rank_spread",
                                    "straggler_probability", "straggler_slowdown"});
    Variation variation;
    object.read_optional("seed", variation.seed, [](const JsonPlace& seed) {
        return static_cast<std::uint64_t>(read_integer(seed, 0, std::int64_t{1} << 50));
    });
    const auto share = [&](std::string_view key, double& target) {
        object.read_optional(key, target, read_number, NumberRange{0, 1});
    };
    share("compute_spread", variation.compute_spread);
    share("operation_spread", variation.operation_spread);
    share("collective_spread", variation.collective_spread);
    share("compute_standard_error", variation.compute_standard_error);
    share("rank_spread", variation.rank_spread);
    if (object.has("straggler_probability") || object.has("straggler_slowdown")) {
        variation.straggler_probability = read_number(object.at("straggler_probability"), {0, 1});
        variation.straggler_slowdown =
            read_number(object.at("straggler_slowdown"), {1, largest_slowdown_read});
    }
    return variation;
}

// Of those that take what is on every rank alone.
void refuse_sharding(const JsonPlace& sync, const Scenario& scenario, StrategyKinds kinds) {
    if (kinds == StrategyKinds::all) {
        return;
    }
    const auto at = [&](const std::string& key) {
        return JsonPlace{&sync.value->at(key), sync.file, sync.pointer + "/" + key};
    };
    if (scenario.sharding) {
        at("strategy").fail("a strategy that keeps all parameters on every rank, here");
    }
    if (scenario.sync.sharded_optimizer) {
        at("sharded_optimizer").fail("an optimizer that updates everything on every rank, here");
    }
}

}  // namespace

void reread_scenario(const Json& document, const std::string& file, const FileReader& read_file,
                     const ScenarioSections& sections, Scenario& scenario, StrategyKinds kinds) {
    const JsonObject object({&document, file, ""}, {"name", "workload", "cluster", "sync", "step",
                                                    "variation", "caveats"});
    const auto rereads = [&](ScenarioSection section) { return sections.contains(section); };
    if (rereads(ScenarioSection::name)) {
        scenario.name = read_string(object.at("name"));
    }
    if (rereads(ScenarioSection::workload)) {
        scenario.workload = read_workload(object.at("workload"));
    }
    if (rereads(ScenarioSection::cluster)) {
        read_cluster(object.at("cluster"), read_file, scenario);
    }
    if (rereads(ScenarioSection::sync)) {
        scenario.sharding = read_sharding(object.at("sync"));
        scenario.sync = scenario.sharding ? SyncRequest{} : read_sync(object.at("sync"));
        refuse_sharding(object.at("sync"), scenario, kinds);
    }
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model != nullptr &&
        (rereads(ScenarioSection::workload) || rereads(ScenarioSection::sync))) {
        check_operation_counts(object.at("workload"), *model, scenario.sync.batch_norm);
    }
    if (rereads(ScenarioSection::step) || rereads(ScenarioSection::workload)) {
        scenario.step = {};
        object.read_optional("step", scenario.step, read_step, scenario);
    }
    if (rereads(ScenarioSection::variation)) {
        scenario.variation.reset();
        object.read_optional("variation", scenario.variation, read_variation);
    }
    if (rereads(ScenarioSection::caveats)) {
        scenario.caveats.clear();
        object.read_optional("caveats", scenario.caveats, read_caveats);
    }
    if (scenario.sharding) {
        check_sharding(object.at("sync"), scenario);
    }
    if (scenario.sync.sharded_optimizer == ShardedOptimizer::broadcast &&
        scenario.group.ranks > most_broadcasting_ranks) {
        throw InputError(file, "/sync/sharded_optimizer",
                         fmt::format("all_gather with more than {} ranks", most_broadcasting_ranks),
                         "broadcast");
    }
}

Scenario parse_scenario(const Json& document, const std::string& file, const FileReader& read_file,
                        StrategyKinds kinds) {
    Scenario scenario;
    const auto& all = every<ScenarioSection>;
    reread_scenario(document, file, read_file, {all.begin(), all.end()}, scenario, kinds);
    return scenario;
}

}  // namespace bucketwise
