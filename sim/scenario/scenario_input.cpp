// Reading a scenario file.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "sim/base/json_table.h"
#include "sim/base/transformed.h"
#include "sim/link/link_input.h"
#include "sim/link/link_presets.h"
#include "sim/link/link_topology.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sharding_input.h"
#include "sim/scenario/sync_input.h"
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

JsonType<double> slowdown() {
    return as::number({1, 100});
}

const JsonTable<Straggler>& straggler_keys() {
    static const JsonTable<Straggler> table{
        "straggler",
        "A rank that is always slower than the others",
        {{"rank", target(&Straggler::rank, as::integer(0, most_ranks - 1)), "required",
          "its number, from 0, below `ranks`; no two alike"},
         {"compute_slowdown", target(&Straggler::compute_slowdown, slowdown()), "required",
          "how many times as long forward, backward and optimizer take it, 1 to 100"}}};
    return table;
}

std::vector<Straggler> read_stragglers(const JsonPlace& place, std::int64_t ranks) {
    std::vector<Straggler> stragglers;
    std::set<std::int64_t> taken;
    std::set<double> slowdowns;
    for (const JsonPlace& element : read_array(place, most_stragglers)) {
        const JsonObject object = straggler_keys().open(element);
        Straggler straggler;
        straggler_keys().read(object, straggler);
        if (straggler.rank >= ranks) {
            object.at("rank").fail(fmt::format("a rank below the number of ranks ({})", ranks));
        }
        if (!taken.insert(straggler.rank).second) {
            object.at("rank").fail("a rank that no other straggler is");
        }
        slowdowns.insert(straggler.compute_slowdown);
        stragglers.push_back(straggler);
    }
    if (slowdowns.size() > most_slowdowns) {
        place.fail(fmt::format("at most {} different slowdowns", most_slowdowns),
                   std::to_string(slowdowns.size()));
    }
    return stragglers;
}

// Read by hand, as the keys depend on each other.
const JsonTable<Scenario>& cluster_keys() {
    static const JsonTable<Scenario> table{
        "cluster",
        "The ranks and what connects them",
        {{"ranks", as::integer(1, most_ranks), "required", "processes, one device each"},
         {"ranks_per_node", as::integer(1, most_ranks), "`ranks`",
          "divides `ranks`; required by a hierarchical link of two tiers, refused beside a "
          "topology, which says it (beside a preset unless it is its own number), ignored by other "
          "links"},
         {"link",
          JsonDescription{{{"oneOf", {as::text().schema, {{"$ref", "link.schema.json"}}}}},
                          "path, preset or object"},
          "required",
          "a link file, relative to the scenario's folder (the current one, where the scenario "
          "comes through a pipe); the name of a [preset](#presets); or a [link](#link) written "
          "out"},
         {"stragglers", as::list(straggler_keys().type(), most_stragglers), "none",
          "ranks that are always slower than the others, by at most 32 different factors"}},
        {},
        {Json{{"if",
               {{"properties",
                 {{"link",
                   {{"type", "object"},
                    {"required", {"algorithm"}},
                    {"properties", {{"algorithm", {{"const", "hierarchical"}}}}}}}}}}},
              {"then", {{"required", {"ranks_per_node"}}}}}}};
    return table;
}

void read_cluster(const JsonPlace& place, const FileReader& read_file, Scenario& scenario) {
    const JsonObject object = cluster_keys().open(place);
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
        static_cast<void>(object.at("ranks_per_node"));
    }
}

// Where operations are listed, they say what the optimizer takes and where the host waits.
void refuse_beside_operations(const JsonObject& object, const Scenario& scenario) {
    const auto* workload = std::get_if<GradientWorkload>(&scenario.workload);
    if (workload == nullptr || !workload->operations) {
        return;
    }
    const ListedOperations& operations = *workload->operations;
    const bool lists_optimizer = !operations.optimizer.empty();
    for (const char* key : {"optimizer_ms", "optimizer", "optimizer_kernels", "optimizer_launch_ms",
                            "clip_gradients"}) {
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

const JsonTable<ClipGradients>& clip_keys() {
    static const JsonTable<ClipGradients> table{
        "clip_gradients",
        "How gradients are clipped",
        {{"host_wait", field(&ClipGradients::host_wait, as::boolean()), "false",
          "the host waits for the norm in every step, as it is logged (`.item()`) or with "
          "`error_if_nonfinite`. Not with `host_is_device` or `cuda_graph`"}}};
    return table;
}

KeyUse<StepRequest> clip_use() {
    KeyUse<StepRequest> use{
        JsonDescription{{{"oneOf", {as::boolean().schema, reference_to(clip_keys().text())}}},
                        "true, false or object",
                        {&clip_keys().text()}}};
    use.read = [](const JsonPlace& place, StepRequest& step) {
        if (place.value->is_object()) {
            step.clip_gradients = clip_keys().read(place);
        } else if (!place.value->is_boolean()) {
            place.fail("true, false or an object with host_wait");
        } else if (place.value->get<bool>()) {
            step.clip_gradients = ClipGradients{};
        }
    };
    return use;
}

// Two passes need a device that says what they cost.
void check_clipping(const JsonObject& object, const StepRequest& step, const Device* device) {
    if (!step.clip_gradients) {
        return;
    }
    const JsonPlace place = object.at("clip_gradients");
    if (device == nullptr) {
        place.fail("a workload with a device", "a workload without one");
    }
    if (step.clip_gradients->host_wait && (device->host_is_device || step.cuda_graph)) {
        JsonPlace{&place.value->at("host_wait"), place.file, place.pointer + "/host_wait"}.fail(
            device->host_is_device ? "false with a device that is its own host (host_is_device)"
                                   : "false with a CUDA graph (cuda_graph)");
    }
}

const JsonTable<StepRequest>& step_keys() {
    using Step = StepRequest;
    static const JsonTable<Step> table{
        "step",
        "What else a step does",
        {{"accumulation", target(&Step::accumulation, as::integer(1, most_micro_steps)), "1",
          "micro-steps. Only the last one synchronises; strategies that shard follow "
          "`gradient_sync`"},
         {"optimizer_ms", target(&Step::optimizer, as::milliseconds()), "0",
          "measured time of the optimizer, and of what comes between backward and it (clipping)"},
         {"optimizer", target(&Step::optimizer, as::one_of<Optimizer>()), "none",
          "instead of a time, and only with a device: these move 3, 5 or 7 elements per parameter "
          "through memory, as a fused step does; `adamw` is understood"},
         {"optimizer_kernels", target(&Step::optimizer_kernels, as::one_of<OptimizerKernels>()),
          "`fused` where computing was measured, else `foreach`",
          "how eager PyTorch steps the optimizer: `foreach` kernels each move what they read and "
          "write, 3, 8 or 20 elements in all; `for_loop` is the same with a kernel for each "
          "parameter"},
         {"optimizer_launch_ms", target(&Step::optimizer_launch, as::milliseconds()),
          "0, or a prior's",
          "host time to launch the optimizer, evenly over one update per gradient: a hand-written "
          "optimizer that loops over parameters keeps the host busy, and a device that is ahead "
          "waits for it. Not with `host_is_device`"},
         {"clip_gradients", clip_use(), "false",
          "`clip_grad_norm_` before the optimizer, and only with a device: two passes over the "
          "gradients that a rank holds, and between them one all-reduce of a number where each "
          "rank holds a part"},
         {"cuda_graph", target(&Step::cuda_graph, as::boolean()), "false",
          "the whole step is captured once and launched as one CUDA graph: the host pays the "
          "device's `graph_launch_us` at its start, and nothing for any operation, copy or "
          "collective. Not with `host_is_device`"},
         {"sync_each_step", target(&Step::sync_each_step, as::boolean()), "false",
          "the training loop reads something back in every step (`loss.item()`, a `GradScaler`), "
          "so each step starts with an idle host and device. Without it the host runs on into the "
          "next steps, and the step is the period of a loop that has settled. A host that is the "
          "device has nothing to run ahead of"},
         {"one_hardware_queue", target(&Step::one_hardware_queue, as::boolean()), "false",
          "processes run with `CUDA_DEVICE_MAX_CONNECTIONS=1`: the device takes the work of all "
          "streams in the order it was issued in, so an operation waits until every collective "
          "issued before it has begun, and a gather ahead until the operations before it have. Not "
          "with `host_is_device`, nor with `cuda_graph`"},
         {"launch_queue", target(&Step::launch_queue, as::integer(1, longest_launch_queue)), "1024",
          "launches that the host may be ahead of the device before it has to wait; a whole step "
          "is one with `cuda_graph`. Not with `host_is_device`"}},
        {exclusive("optimizer_ms", "optimizer")},
        {Json{{"dependentRequired", {{"optimizer_kernels", {"optimizer"}}}}}}};
    return table;
}

StepRequest read_step(const JsonPlace& place, const Scenario& scenario) {
    const JsonObject object = step_keys().open(place);
    refuse_beside_operations(object, scenario);
    StepRequest step;
    step_keys().read(object, step);
    const Device* device = device_of(scenario);
    if (object.has("optimizer") && device == nullptr) {
        object.at("optimizer")
            .fail("a workload with a device, or optimizer_ms", "a workload without one");
    }
    if (step.optimizer_kernels && std::holds_alternative<Duration>(step.optimizer)) {
        object.at("optimizer_kernels").fail("an optimizer", "kernels of none");
    }
    check_clipping(object, step, device);
    const bool host_is_device = device != nullptr && device->host_is_device;
    if (step.one_hardware_queue && (host_is_device || step.cuda_graph)) {
        object.at("one_hardware_queue")
            .fail(host_is_device ? "false with a device that is its own host (host_is_device)"
                                 : "false with a CUDA graph (cuda_graph)",
                  "true");
    }
    if (!host_is_device) {
        return step;
    }
    if (step.cuda_graph) {
        object.at("cuda_graph")
            .fail("no CUDA graph with a device that is its own host (host_is_device)", "true");
    }
    for (const auto& [key, got] : {std::pair("optimizer_launch_ms", "a time for them"),
                                   std::pair("launch_queue", "a queue for them")}) {
        use_present(object, key, [got = got](const JsonPlace& found) {
            found.fail("no launches with a device that is its own host (host_is_device)", got);
        });
    }
    return step;
}

JsonType<std::uint64_t> seed() {
    const JsonType<std::int64_t> number = as::integer(0, std::int64_t{1} << 50);
    return {number, [read = number.read](const JsonPlace& place) {
                return static_cast<std::uint64_t>(read(place));
            }};
}

const JsonTable<Variation>& variation_keys() {
    JsonType<double> share = as::number({0, 1});
    share.called = "share";
    static const JsonTable<Variation> table{
        "variation",
        "How much the machine varies from step to step: relative standard deviations",
        {{"seed", target(&Variation::seed, seed()), "1", "of all draws"},
         {"compute_spread", target(&Variation::compute_spread, share), "0",
          "standard deviation of a step's computing, all its operations alike"},
         {"operation_spread", target(&Variation::operation_spread, share), "0",
          "of each operation on its own, in addition"},
         {"collective_spread", target(&Variation::collective_spread, share), "0",
          "of each collective on its own"},
         {"compute_standard_error", target(&Variation::compute_standard_error, share), "0",
          "standard error of the computing times that the workload gives"},
         {"rank_spread", target(&Variation::rank_spread, share), "0",
          "standard deviation of each rank's computing of a step, each rank on its own; the "
          "slowest of all ranks holds everybody, so this costs more the more ranks there are"},
         {"straggler_probability", target(&Variation::straggler_probability, share), "0",
          "probability that a rank is a straggler in a step, each rank and step on its own; of p "
          "ranks at least one is with 1 − (1 − q)^p. Only together with `straggler_slowdown`"},
         {"straggler_slowdown", target(&Variation::straggler_slowdown, slowdown()), "none",
          "how many times as long computing takes such a straggler, 1 to 100"}},
        {needs("straggler_probability", "straggler_slowdown"),
         needs("straggler_slowdown", "straggler_probability")}};
    return table;
}

// For readers that take replicated strategies only.
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

const JsonTable<Scenario>& scenario_keys() {
    static const JsonTable<Scenario> table{
        "scenario",
        "A training step: workload, cluster, strategy. Keys: scenarios/README.md",
        {{"name", as::text(), "required", "shown in reports"},
         {"workload", workload_description(), "required",
          "what one rank computes in one micro-step: a model, or gradients one by one"},
         {"cluster", cluster_keys().type(), "required", "ranks and link"},
         {"sync", sync_table().type(), "required",
          "how gradients become buckets and when they go out"},
         {"step", step_keys().type(), "none", "accumulation and optimizer"},
         {"variation", variation_keys().type(), "none",
          "how much the machine varies; the prediction then comes with an interval"},
         {"caveats", as::caveats(), "none", "known weaknesses of it: [caveats](#caveats)"}},
        {},
        {Json{{"if",
               {{"required", {"step"}}, {"properties", {{"step", {{"required", {"optimizer"}}}}}}}},
              {"then", {{"properties", {{"workload", {{"required", {"device"}}}}}}}}},
         Json::parse(
             R"({"if": {"required": ["sync"], "properties": {"sync": {"required": ["sharding"],
             "properties": {"sharding": {"required": ["float8_all_gather"],
                                         "properties": {"float8_all_gather": {"const": true}}}}}}},
             "then": {"properties": {"workload": {"required": ["arithmetic"],
                 "properties": {"arithmetic": {"const": "float8_tensorwise"}}}}}})"),
         Json::parse(R"({"if": {"required": ["step"], "properties": {"step":
             {"required": ["clip_gradients"], "properties": {"clip_gradients": {"not": {"const": false}}}}}},
             "then": {"properties": {"workload": {"required": ["device"]}}}})")}};
    return table;
}

}  // namespace

const ObjectText& scenario_text() {
    return scenario_keys().text();
}

void reread_scenario(const Json& document, const std::string& file, const FileReader& read_file,
                     const ScenarioSections& sections, Scenario& scenario, StrategyKinds kinds) {
    const JsonObject object = scenario_keys().open({&document, file, ""});
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
        if (model->recompute && scenario.sync.batch_norm != BatchNormSync::local) {
            throw InputError(file, "/workload/activation_checkpointing",
                             "none where batch_norm exchanges statistics", "both");
        }
        check_operation_counts(object.at("workload"), *model, scenario.sync.batch_norm);
    }
    if (rereads(ScenarioSection::step) || rereads(ScenarioSection::workload)) {
        scenario.step = {};
        object.read_optional("step", scenario.step, read_step, scenario);
    }
    if (rereads(ScenarioSection::variation)) {
        scenario.variation.reset();
        object.read_optional("variation", scenario.variation,
                             [](const JsonPlace& place) { return variation_keys().read(place); });
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
