// From a scenario to what the simulator runs.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/link/assumed_interference.h"
#include "sim/link/link_topology.h"
#include "sim/link/overlap_prior.h"
#include "sim/program/framework.h"
#include "sim/scenario/measured_workload.h"
#include "sim/scenario/memory_need.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/workload_input.h"
#include "sim/sharding/shard_plan.h"
#include "sim/workload/model.h"

namespace bucketwise {
namespace {

// Memory traffic of an optimizer per parameter. Fused SGD reads parameter and gradient and writes
// the parameter; momentum and Adam's two moments are each read and written as well. Unfused, each
// operation writes the input of the next one.
struct OptimizerWork {
    std::int64_t fused_elements = 0;  // read + written
    std::int64_t elements = 0;        // the same, operation by operation
    std::int64_t operations = 0;
};
OptimizerWork work_of(Optimizer optimizer) {
    constexpr std::array<OptimizerWork, every<Optimizer>.size()> work{
        {{3, 3, 1}, {5, 8, 3}, {7, 20, 8}}};
    return work[static_cast<std::size_t>(optimizer)];
}

struct OptimizerTimes {
    Duration device{0};
    Duration host{0};
};

// Memory-bound: every element of what is updated, of one rank, passes once between memory and the
// device.
constexpr std::int64_t directions_of_a_copy = 2;
Duration fused_optimizer_time(const StepRequest& step, Optimizer optimizer, Bytes updated,
                              const Device& device) {
    return (step.cuda_graph ? Duration{0} : device.launch) +
           transfer_time(updated, copy_bandwidth(device),
                         {work_of(optimizer).fused_elements, directions_of_a_copy});
}

// PyTorch hands a foreach kernel some 50 tensors at once.
double foreach_kernels(std::size_t tensors) {
    constexpr double tensors_of_a_kernel = 50;
    return std::ceil(static_cast<double>(tensors) / tensors_of_a_kernel);
}

// Passing once over memory, on a device that nobody has measured.
double us_to_pass(Bytes bytes, const Device& device) {
    return static_cast<double>(bytes.count) / (static_cast<double>(device.memory_bandwidth.count) *
                                               1e-6 * (*device.prior)[GpuFactor::pass_efficiency]);
}

// As a device does it that nobody has measured. PyTorch takes a microsecond on the host to put each
// tensor into a list.
OptimizerTimes prior_optimizer_times(Optimizer optimizer, OptimizerKernels kind,
                                     std::size_t parameters, Bytes updated, const Device& device) {
    constexpr double listing_us = 1;
    const OptimizerWork work = work_of(optimizer);
    const GpuPrior& prior = *device.prior;
    const auto tensors = static_cast<double>(parameters);
    const bool fused = kind == OptimizerKernels::fused;
    const bool loop = kind == OptimizerKernels::for_loop;
    const auto operations = static_cast<double>(fused ? 1 : work.operations);
    const double kernels = operations * (loop ? tensors : foreach_kernels(parameters));
    const double passes = static_cast<double>(fused ? work.fused_elements : work.elements);
    const double host_us = kernels * host_costs(Execution::eager).kernel_us +
                           (loop ? 0 : operations * tensors * listing_us);
    return {duration_from_us(passes * us_to_pass(updated, device) +
                             kernels * prior[GpuFactor::kernel_us]),
            duration_from_us(host_us * prior[GpuFactor::host_scale])};
}

OptimizerTimes optimizer_times(const Scenario& scenario, const Workload& workload) {
    const StepRequest& step = scenario.step;
    if (const auto* time = std::get_if<Duration>(&step.optimizer)) {
        return {*time, step.optimizer_launch};
    }
    const Optimizer optimizer = std::get<Optimizer>(step.optimizer);
    const Device& device = *device_of(scenario);
    const std::int64_t parts = scenario.sharding                 ? shard_group_of(scenario).ranks
                               : scenario.sync.sharded_optimizer ? scenario.group.ranks
                                                                 : 1;
    const Bytes updated = divided(workload.gradient_bytes(), parts);
    if (!device.prior || !(has_prior_computing(scenario) || step.optimizer_kernels)) {
        return {fused_optimizer_time(step, optimizer, updated, device), step.optimizer_launch};
    }
    OptimizerTimes times =
        prior_optimizer_times(optimizer, step.optimizer_kernels.value_or(OptimizerKernels::foreach),
                              workload.gradients.size(), updated, device);
    if (step.optimizer_launch > Duration{0}) {
        times.host = step.optimizer_launch;
    }
    return times;
}

// Reads all gradients for their norm, reads and writes them for the product, of a rank's shards
// where there are any. Beside the foreach kernels one makes a norm of all norms, two the factor.
std::optional<Clipping> clipping_of(const Scenario& scenario, const Workload& workload) {
    if (!scenario.step.clip_gradients) {
        return std::nullopt;
    }
    constexpr double small_kernels = 3;
    const Device& device = *device_of(scenario);
    const Bytes held =
        divided(workload.gradient_bytes(), scenario.sharding ? shard_group_of(scenario).ranks : 1);
    Clipping clipping{.host_waits = scenario.step.clip_gradients->host_wait};
    if (!device.prior) {
        const BytesPerSecond copied = copy_bandwidth(device);
        const Duration launch = scenario.step.cuda_graph ? Duration{0} : device.launch;
        clipping.norm = launch + transfer_time(held, copied, {1, directions_of_a_copy});
        clipping.multiplication = launch + transfer_time(held, copied, {2, directions_of_a_copy});
        return clipping;
    }
    const GpuPrior& prior = *device.prior;
    const double kernels = foreach_kernels(workload.gradients.size());
    const double us = us_to_pass(held, device);
    const auto on_device = [&](double passes, double count) {
        return duration_from_us(passes * us + count * prior[GpuFactor::kernel_us]);
    };
    const auto on_host = [&](double count) {
        return duration_from_us(count * host_costs(Execution::eager).kernel_us *
                                prior[GpuFactor::host_scale]);
    };
    clipping.norm = on_device(1, kernels + small_kernels);
    clipping.norm_launch = on_host(kernels + small_kernels);
    clipping.multiplication = on_device(2, kernels);
    clipping.multiplication_launch = on_host(kernels);
    return clipping;
}

// One class for each distinct slowdown, the slowest first, and one of all other ranks.
std::vector<RankClass> classes_of(const std::vector<Straggler>& stragglers, std::int64_t ranks) {
    std::map<double, std::int64_t, std::greater<>> slower;
    for (const Straggler& straggler : stragglers) {
        if (straggler.compute_slowdown > 1) {
            ++slower[straggler.compute_slowdown];
            --ranks;
        }
    }
    std::vector<RankClass> classes;
    for (const auto& [slowdown, count] : slower) {
        classes.push_back({count, slowdown});
    }
    if (!classes.empty() && ranks > 0) {
        classes.push_back({ranks, 1});
    }
    return classes;
}

ModelTiming timing_of(const ModelWorkload& workload, const Scenario& scenario) {
    return {.device = workload.device.value_or(device_for_spreading()),
            .arithmetic = workload.arithmetic,
            .measured_forward = workload.forward,
            .measured_backward = workload.backward,
            .measured_forward_operations = workload.forward_operations,
            .measured_backward_operations = workload.backward_operations,
            .batch_norm = scenario.sync.batch_norm,
            .run = workload.run,
            .is_one_launch = scenario.step.cuda_graph,
            .recompute = workload.recompute,
            .joint = joint_computing(scenario)};
}

Workload timed_workload(const ModelWorkload& workload, const Scenario& scenario) {
    return workload_from_model(model_of(workload), workload.dtype, timing_of(workload, scenario));
}

// Sums one micro-step: each operation on the device or its host, whichever takes longer.
double computing_seconds(const Workload& workload) {
    double seconds = 0;
    for (const std::vector<TimedOperation>* pass : {&workload.forward, &workload.backward}) {
        for (const TimedOperation& operation : *pass) {
            seconds += to_ms(std::max(operation.device, operation.host)) / 1e3;
        }
    }
    return seconds;
}

Workload timed_workload(const GradientWorkload& workload, const Scenario& /*scenario*/) {
    Workload result = measured_workload(workload);
    if (workload.operations) {
        result.mix = backward_mix(result.backward, [](const TimedOperation& operation) {
            return names_matrix_product(operation.name);
        });
        if (result.mix.product == Duration{0}) {
            result.mix.product_share.reset();  // these names do not tell
        }
    }
    result.buffer_groups = workload.buffers;
    if (workload.device) {
        result.copy_launch = workload.device->time_to_launch_copy();
        result.host_is_device = workload.device->host_is_device;
    }
    result.copy_launch = workload.copy_launch.value_or(result.copy_launch);
    result.host_is_device = workload.host_is_device.value_or(result.host_is_device);
    return result;
}

// Sets assumed slowdowns of collectives and computing on GPUs, where nobody measured them.
void assume_interference(const Device* device, StepInput& input) {
    if (!lacks_interference(input.link) || input.workload.host_is_device ||
        input.group.ranks == 1) {
        return;
    }
    const BackwardMix& mix = input.workload.mix;
    constexpr double usual_product_share = 0.7;
    ComputingBeside computing{.multiprocessors = {},
                              .memory_bandwidth = {},
                              .product_share = mix.product_share.value_or(usual_product_share),
                              .product = mix.product,
                              .operation = mix.operation};
    if (device != nullptr) {
        computing.multiprocessors = device->multiprocessors;
        computing.memory_bandwidth = device->memory_bandwidth;
    }
    input.link.interference = assumed_interference(input.link, input.group, computing);
    input.link.assumes_interference = true;
}

// One rank of each node, or of each so many nodes, with its part of the node's adapters. Where
// shards are smaller than a node, as many ranks of it as it has shards.
RegularTopology between_replicas(RegularTopology topology, std::int64_t shard_ranks) {
    const std::int64_t gpus = topology.node.gpus;
    const std::int64_t sharing = std::min(shard_ranks, gpus);
    topology.node.gpus = std::max<std::int64_t>(gpus / sharing, 1);
    if (topology.nics) {
        NicTopology& nics = *topology.nics;
        const BytesPerSecond all{nics.per_node * nics.bandwidth.count};
        nics.per_node = std::min(nics.per_node, topology.node.gpus);
        nics.bandwidth = {all.count / sharing / nics.per_node};
    }
    const std::int64_t nodes_together = std::max<std::int64_t>(shard_ranks / gpus, 1);
    for (TierTopology& tier : topology.tiers) {
        tier.nodes = std::max<std::int64_t>(tier.nodes / nodes_together, 1);
    }
    return topology;
}

// As the topology has them, or the scenario.
std::int64_t ranks_of_a_node(const Scenario& scenario) {
    const LinkParameters& link = scenario.link;
    const std::int64_t per_node = link.topology && link.topology->regular
                                      ? link.topology->regular->node.gpus
                                      : scenario.group.ranks_per_node;
    return std::min(per_node, scenario.group.ranks);
}

// Connects ranks of equal place in each group, with their part of their nodes' adapters, as all
// groups' replicas reduce at the same time. Throws InputError where there is no such link.
void set_replicas(const Scenario& scenario, const RankGroup& shards, StepInput& step) {
    Replicas& replicas = step.replicas;
    replicas.group.ranks_per_node = 1;
    step.group = shards;
    replicas.link = step.link;
    if (step.link.algorithm == Algorithm::hierarchical && !step.link.topology &&
        shards.ranks == scenario.group.ranks_per_node) {
        const Duration launch = step.link.launch;
        const std::vector<LinkParameters> tiers = step.link.tiers;
        const auto tier = [&](std::size_t index) {
            LinkParameters link = tiers[index];
            link.launch += launch;
            link.host_issue = step.link.host_issue;
            link.host_wait = step.link.host_wait;
            link.interference = step.link.interference;
            link.ctas = step.link.ctas;
            return link;
        };
        replicas.link = tier(1);
        step.link = tier(0);
        return;
    }
    if (step.link.topology && step.link.topology->regular) {
        if (const auto fault = prepare_topology(step.link, shards.ranks)) {
            throw InputError("scenario", "/sync/sharding/shard_ranks", fault->expected, fault->got);
        }
        replicas.link.topology->regular =
            between_replicas(*replicas.link.topology->regular, shards.ranks);
        if (const auto fault = prepare_topology(replicas.link, replicas.group.ranks)) {
            throw InputError("scenario", "/sync/sharding/shard_ranks", fault->expected, fault->got);
        }
    }
}

Model written_model(const ModelWorkload& workload) {
    if (const auto* shape = std::get_if<TransformerShape>(&workload.model)) {
        return make_transformer(std::string(name_of(shape->family)), *shape, workload.input);
    }
    if (const auto* shape = std::get_if<VitShape>(&workload.model)) {
        return make_vision_transformer("vit", *shape, workload.input);
    }
    if (const auto* shape = std::get_if<MlpShape>(&workload.model)) {
        return make_mlp(*shape, workload.input);
    }
    if (const auto* listed = std::get_if<ListedModel>(&workload.model)) {
        return listed->model;
    }
    return make_model(std::get<std::string>(workload.model), workload.input);
}

}  // namespace

Model model_of(const ModelWorkload& workload) {
    Model model = written_model(workload);
    if (workload.run.fused_norms) {
        fuse_norms(model);
    }
    return model;
}

const Device* device_of(const Scenario& scenario) {
    return std::visit(
        [](const auto& workload) { return workload.device ? &*workload.device : nullptr; },
        scenario.workload);
}

bool has_prior_computing(const Scenario& scenario) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    return workload != nullptr && workload->device && workload->device->prior &&
           !workload->forward && workload->forward_operations.empty();
}

Scenario at_device_end(Scenario scenario, PresetEnd end) {
    invariant(has_prior_computing(scenario), "computing is a preset's");
    auto& workload = std::get<ModelWorkload>(scenario.workload);
    const Model model = model_of(workload);
    ModelTiming timing = timing_of(workload, scenario);
    const auto seconds = [&] {
        return computing_seconds(workload_from_model(model, workload.dtype, timing));
    };
    const double typical = seconds();
    double sum = 0;
    double squares = 0;
    for (const GpuFactor factor : every<GpuFactor>) {
        std::optional<double>& given = timing.device.prior->given[static_cast<std::size_t>(factor)];
        if (!given) {
            given = range_of(factor).range[static_cast<std::size_t>(end)];
            const double effect = std::abs(std::log(seconds() / typical));
            given.reset();
            sum += effect;
            squares += effect * effect;
        }
    }
    GpuPrior& prior = *workload.device->prior;
    const double share = sum > 0 ? std::sqrt(squares) / sum : 1;
    for (const GpuFactor factor : every<GpuFactor>) {
        std::optional<double>& given = prior.given[static_cast<std::size_t>(factor)];
        if (!given) {
            const PresetRange& range = range_of(factor).range;
            given = std::lerp(prior[factor], range[static_cast<std::size_t>(end)], share);
        }
    }
    return scenario;
}

void set_cluster(const Scenario& scenario, StepInput& input) {
    input.group = scenario.group;
    input.classes = classes_of(scenario.stragglers, scenario.group.ranks);
    input.link = scenario.link;
    const Device* device = device_of(scenario);
    input.copy_bandwidth = scenario.link.copy_bandwidth;
    input.copy_fixed = Duration{0};
    if (const auto* listed = std::get_if<GradientWorkload>(&scenario.workload)) {
        if (!input.copy_bandwidth) {
            input.copy_bandwidth = listed->copy_bandwidth;
        }
        if (input.link.host_issue == Duration{0}) {
            input.link.host_issue = listed->collective_issue.value_or(Duration{0});
        }
    }
    if (!input.copy_bandwidth && device != nullptr) {
        input.copy_bandwidth = copy_bandwidth(*device);
        input.copy_fixed = device->copy_fixed;
    }
    if (const std::optional<double> share = input.workload.mix.product_share) {
        set_product_share(*share, input.link);
    }
    if (input.workload.late_host > 0 && input.link.host_issue == Duration{0} &&
        joins_gpus(input.link)) {
        input.link.host_issue =
            scaled(is_ddp(scenario.sync.strategy) || framework_of(scenario.sync.strategy)
                       ? issued_by_reducer
                       : issued_by_hooks,
                   input.workload.late_host);
    }
    assume_interference(device, input);
}

JointComputing joint_computing(const Scenario& scenario) {
    JointComputing joint;
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (scenario.sharding) {
        joint.compiles_blocks = scenario.sharding->strategy != ShardedStrategy::zero3 &&
                                workload != nullptr &&
                                workload->run.execution == Execution::compiled;
        joint.gathers_float8 = scenario.sharding->float8_all_gather;
        joint.parameter_dtype = scenario.sharding->parameter_dtype;
    }
    // Where the scenario says how ranks differ, a prior adds nothing.
    if (workload != nullptr && workload->device && workload->device->prior &&
        classes_of(scenario.stragglers, scenario.group.ranks).empty() &&
        !ranks_vary(scenario.variation.value_or(Variation{}))) {
        joint.ranks = scenario.group.ranks;
    }
    return joint;
}

StepInput step_input(const Scenario& scenario) {
    return step_input(
        scenario,
        std::visit([&](const auto& workload) { return timed_workload(workload, scenario); },
                   scenario.workload));
}

RankGroup shard_group_of(const Scenario& scenario) {
    invariant(scenario.sharding.has_value(), "the scenario shards");
    const RankGroup& all = scenario.group;
    const bool replicates = scenario.sharding->strategy == ShardedStrategy::hsdp;
    const std::int64_t ranks =
        replicates ? scenario.sharding->shard_ranks.value_or(ranks_of_a_node(scenario)) : all.ranks;
    return {ranks, std::min(ranks, all.ranks_per_node)};
}

namespace {

ShardedInput shard(const Scenario& scenario, StepInput step) {
    ShardedInput input{std::move(step), *scenario.sharding};
    const RankGroup shards = shard_group_of(scenario);
    input.step.replicas.group.ranks = scenario.group.ranks / shards.ranks;
    if (input.step.replicas.group.ranks > 1) {
        set_replicas(scenario, shards, input.step);
    }
    return input;
}

}  // namespace

ShardedInput sharded_input(const Scenario& scenario) {
    return shard(scenario, step_input(scenario));
}

ShardedInput sharded_input(const Scenario& scenario, Workload workload) {
    return shard(scenario, step_input(scenario, std::move(workload)));
}

StepInput step_input(const Scenario& scenario, Workload workload) {
    StepInput input;
    input.workload = std::move(workload);
    if (scenario.sharding) {
        input.workload = with_passes_by_gradient(std::move(input.workload));
    }
    set_cluster(scenario, input);
    const Device* device = device_of(scenario);
    input.variation = scenario.variation;
    input.step.accumulation = scenario.step.accumulation;
    input.step.sync_each_step = scenario.step.sync_each_step;
    input.step.one_hardware_queue = scenario.step.one_hardware_queue;
    input.step.launch_queue = scenario.step.launch_queue;
    const OptimizerTimes optimizer = optimizer_times(scenario, input.workload);
    input.step.optimizer = optimizer.device;
    input.step.optimizer_launch = optimizer.host;
    input.step.clipping = clipping_of(scenario, input.workload);
    if (const auto* listed = std::get_if<GradientWorkload>(&scenario.workload);
        listed != nullptr && listed->operations) {
        input.step.optimizer_operations = listed->operations->optimizer;
    }
    if (scenario.step.cuda_graph) {
        input.step.graph_launch = device != nullptr ? device->graph_launch : Duration{0};
    }
    if (input.link.assumes_interference && !scenario.sharding) {
        input.spare_memory = memory_need(scenario).spare();
    }
    input.workload = held_by(std::move(input.workload), scenario.sync);
    return input;
}

}  // namespace bucketwise
