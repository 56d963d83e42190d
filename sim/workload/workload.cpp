#include "sim/workload/workload.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// One pass of one operation, its cost in seconds before any scaling.
struct CostedOperation {
    TimedOperation operation;
    double seconds = 0;
};

// The source of costs: a framework's kernels on a device with a prior, else a roofline.
struct Costs {
    const Model& model;
    const ModelTiming& timing;
    std::optional<EagerCosts> eager;
    CompiledGraphs graphs;
};

bool is_measured(const ModelTiming& timing) {
    return timing.measured_forward || timing.measured_backward ||
           !timing.measured_forward_operations.empty();
}

Costs costs_of(const Model& model, DType dtype, const ModelTiming& timing) {
    Costs costs{model, timing, {}, {model, timing.run.execution, timing.joint.compiles_blocks}};
    if (timing.device.prior && !is_measured(timing)) {
        costs.eager.emplace(model, timing.device, timing.arithmetic,
                            timing.joint.parameter_dtype.value_or(dtype), timing.run,
                            timing.joint.gathers_float8);
    }
    return costs;
}

// How much longer than on the mean rank computing takes on the slowest, for which all others wait.
double slowest_of(const ModelTiming& timing) {
    return timing.device.prior ? 1 + (*timing.device.prior)[GpuFactor::rank_spread] *
                                         std::log(static_cast<double>(timing.joint.ranks))
                               : 1;
}

Duration duration_from_seconds(double seconds) {
    constexpr auto largest_ps = static_cast<double>(longest_duration.count());
    return Duration{
        static_cast<std::int64_t>(std::min(std::floor(seconds * 1e12 + 0.5), largest_ps))};
}

// Rounds the running sum, not each part, so that the parts sum to the total exactly.
void spread_total(std::vector<CostedOperation>& operations, Duration total) {
    const double sum =
        std::accumulate(operations.begin(), operations.end(), 0.0,
                        [](double s, const CostedOperation& o) { return s + o.seconds; });
    double running = 0;
    Duration placed{0};
    for (CostedOperation& costed : operations) {
        running += costed.seconds;
        const double share = sum > 0 ? std::min(running / sum, 1.0) : 1.0;
        const Duration end{std::llround(static_cast<double>(total.count()) * share)};
        costed.operation.device = end - placed;
        costed.operation.host = Duration{0};
        placed = end;
    }
    if (!operations.empty()) {
        operations.back().operation.device += total - placed;
    }
}

// Where the host is the device, a measured time contains the launch; else the host launches in
// addition.
void set_times(std::vector<CostedOperation>& operations, const std::vector<Duration>& times,
               const Device& device) {
    invariant(operations.size() == times.size(), "every operation of a pass has a measured time");
    for (std::size_t i = 0; i < operations.size(); ++i) {
        operations[i].operation.device = times[i];
        operations[i].operation.host = device.host_is_device ? Duration{0} : device.launch;
    }
}

// Autograd reaches an operation's node with the first of its passes.
void set_costs(std::vector<CostedOperation>& operations, const Costs& costs) {
    const double slowest = slowest_of(costs.timing);
    const std::vector<PassPlace> places = costs.graphs.places(transformed(
        operations, [](const CostedOperation& costed) { return *costed.operation.source; }));
    for (std::size_t i = 0; i < operations.size(); ++i) {
        TimedOperation& timed = operations[i].operation;
        const auto [index, pass] = *timed.source;
        const bool first = i == 0 || operations[i - 1].operation.source->operation != index ||
                           is_forward(operations[i - 1].operation.source->pass) != is_forward(pass);
        const PassCost cost = costs.eager->of(
            costs.model.operations[static_cast<std::size_t>(index)], pass, places[i]);
        timed.device = duration_from_seconds(cost.seconds * slowest);
        timed.host = costs.eager->host(cost, pass, first, timed.ready_count, places[i]);
    }
}

std::vector<TimedOperation> timed(std::vector<CostedOperation> operations, const Costs& costs,
                                  std::optional<Duration> measured_total,
                                  const std::vector<Duration>& measured_operations) {
    const Device& device = costs.timing.device;
    if (costs.eager) {
        set_costs(operations, costs);
    } else if (!measured_operations.empty()) {
        set_times(operations, measured_operations, device);
    } else if (measured_total) {
        spread_total(operations, scaled(*measured_total, slowest_of(costs.timing)));
    } else {
        for (CostedOperation& costed : operations) {
            costed.operation.device = duration_from_seconds(costed.seconds);
            costed.operation.host = device.launch;
        }
    }
    return transformed(operations, &CostedOperation::operation);
}

bool is_synchronised(const Operation& operation, const ModelTiming& timing) {
    return operation.batch_norm_channels > 0 && timing.batch_norm != BatchNormSync::local;
}

CostedOperation pass_of(const Model& model, std::size_t index, Pass pass, const std::string& suffix,
                        const ModelTiming& timing) {
    const Operation& operation = model.operations[index];
    return {{.name = operation.name + suffix,
             .source = OperationPass{static_cast<std::int32_t>(index), pass}},
            roofline_seconds(work_of(operation, pass), timing.device,
                             beside_float8(timing.arithmetic))};
}

std::vector<CostedOperation> forward_pass(const Model& model, const ModelTiming& timing) {
    std::vector<CostedOperation> pass;
    for (std::size_t i = 0; i < model.operations.size(); ++i) {
        const Operation& operation = model.operations[i];
        if (operation.forward == Work{}) {
            continue;  // a view: nothing is launched
        }
        if (is_synchronised(operation, timing)) {
            pass.push_back(pass_of(model, i, Pass::statistics, " statistics", timing));
            pass.back().operation.exchange =
                forward_exchange(timing.batch_norm, operation.batch_norm_channels);
            pass.push_back(pass_of(model, i, Pass::normalise, "", timing));
        } else {
            pass.push_back(pass_of(model, i, Pass::forward, "", timing));
        }
    }
    return pass;
}

// Appends to `readiness` the parameters of `operation` that no earlier operation uses, and sums the
// others up: backward visits their earlier users later, and completes the gradients only then.
void finish_parameters(const Model& model, std::size_t operation,
                       const std::vector<std::size_t>& first_user, Bytes element,
                       TimedOperation& timed, std::vector<std::int32_t>& readiness) {
    for (const std::int32_t parameter : model.operations[operation].parameters) {
        const auto index = static_cast<std::size_t>(parameter);
        if (first_user[index] == operation) {
            readiness.push_back(parameter);
            ++timed.ready_count;
        } else {
            timed.used_before += model.parameters[index].numel() * element;
        }
    }
}

// Runs a block's forward again in front of its backward.
void add_recomputation(const Model& model, const ModelTiming& timing, const RecomputedBlock& block,
                       std::vector<CostedOperation>& pass) {
    for (const std::size_t again : block.again) {
        if (model.operations[again].forward != Work{}) {
            pass.push_back(pass_of(model, again, Pass::forward, " recomputed", timing));
            pass.back().operation.recomputed = 1;
        }
    }
}

std::vector<RecomputedBlock> blocks_of_timing(const Model& model, const ModelTiming& timing) {
    return timing.recompute
               ? recomputed_blocks(model, *timing.recompute, is_attention_fused(model, timing.run))
               : std::vector<RecomputedBlock>{};
}

std::vector<CostedOperation> backward_pass(const Model& model, DType gradient_dtype,
                                           const ModelTiming& timing,
                                           std::vector<std::int32_t>& readiness) {
    // Blocks begin backward with their last operation, the last block first.
    std::vector<RecomputedBlock> recomputed = blocks_of_timing(model, timing);
    std::ranges::sort(recomputed, {}, &RecomputedBlock::end);
    std::vector<std::size_t> first_user(model.parameters.size(), model.operations.size());
    for (std::size_t i = model.operations.size(); i-- > 0;) {
        for (const std::int32_t parameter : model.operations[i].parameters) {
            first_user[static_cast<std::size_t>(parameter)] = i;
        }
    }
    std::vector<CostedOperation> pass;
    for (std::size_t i = model.operations.size(); i-- > 0;) {
        if (!recomputed.empty() && recomputed.back().end == i + 1) {
            add_recomputation(model, timing, recomputed.back(), pass);
            recomputed.pop_back();
        }
        const Operation& operation = model.operations[i];
        const bool has_weight =
            operation.weight_gradient != Work{} || !operation.parameters.empty();
        const bool synchronised = is_synchronised(operation, timing);
        if (synchronised) {
            pass.push_back(pass_of(model, i, Pass::weight_gradient, " weight gradient", timing));
            pass.back().operation.exchange =
                backward_exchange(timing.batch_norm, operation.batch_norm_channels);
        }
        if (operation.input_gradient != Work{}) {
            pass.push_back(pass_of(model, i, Pass::input_gradient, " input gradient", timing));
        }
        if (has_weight && !synchronised) {
            pass.push_back(pass_of(model, i, Pass::weight_gradient, " weight gradient", timing));
        }
        if (has_weight) {
            finish_parameters(model, i, first_user, element_size(gradient_dtype),
                              pass.back().operation, readiness);
        }
    }
    return pass;
}

// The gradients of a compiled block leave its backward together. Blocks are contiguous.
void hand_out_by_block(const CompiledGraphs& graphs, std::vector<CostedOperation>& backward) {
    const auto graph_of = [&](std::size_t i) {
        return graphs.graph_of(static_cast<std::size_t>(backward[i].operation.source->operation));
    };
    for (std::size_t i = 0; i + 1 < backward.size(); ++i) {
        if (graph_of(i) && graph_of(i) == graph_of(i + 1)) {
            backward[i + 1].operation.ready_count +=
                std::exchange(backward[i].operation.ready_count, 0);
        }
    }
}

struct PassTimes {
    Duration device{0};
    Duration host{0};
};

// Where the device's prior says that the host is late, nobody knows which of the two an operation
// waited for: the host takes as long to launch it as the device to run it, and neither hides what
// else the other has to do.
void recognise_late_host(const Model& model, DType dtype, const ModelTiming& timing,
                         Workload& workload) {
    if (!timing.device.prior || !timing.measured_forward || !timing.measured_backward ||
        timing.is_one_launch) {
        return;
    }
    ModelTiming unmeasured = timing;
    unmeasured.measured_forward = unmeasured.measured_backward = {};
    const Costs costs = costs_of(model, dtype, unmeasured);
    std::vector<std::int32_t> readiness;
    PassTimes prior;
    for (std::vector<CostedOperation> pass :
         {forward_pass(model, timing), backward_pass(model, dtype, timing, readiness)}) {
        set_costs(pass, costs);
        for (const CostedOperation& costed : pass) {
            prior.device += costed.operation.device;
            prior.host += costed.operation.host;
        }
    }
    const Duration measured = *timing.measured_forward + *timing.measured_backward;
    if (prior.host <= prior.device || measured < prior.host) {
        return;
    }
    for (std::vector<TimedOperation>* pass : {&workload.forward, &workload.backward}) {
        for (TimedOperation& operation : *pass) {
            operation.host = operation.device;
        }
    }
    workload.late_host =
        static_cast<double>(measured.count()) / static_cast<double>(prior.host.count());
}

// The weights of linear layers that multiply in float8.
void mark_float8(const Model& model, std::vector<Gradient>& gradients) {
    for (const RecomputedBlock& block : recomputed_blocks(model, {}, false)) {
        for (std::size_t i = block.first; i < block.end; ++i) {
            const Operation& operation = model.operations[i];
            for (const std::int32_t parameter : operation.parameters) {
                Gradient& gradient = gradients[static_cast<std::size_t>(parameter)];
                gradient.is_float8 = operation.kind == OperationKind::linear &&
                                     gradient.numel == operation.product->k * operation.product->n;
            }
        }
    }
}

std::vector<BufferGroup> buffer_groups(const Model& model) {
    std::map<std::int64_t, BufferGroup> by_element_size;
    for (const Buffer& buffer : model.buffers) {
        BufferGroup& group = by_element_size[buffer.element.count];
        group.size += buffer.numel * buffer.element;
        ++group.tensors;
    }
    return transformed(by_element_size, [](const auto& entry) { return entry.second; });
}

}  // namespace

Bytes Workload::gradient_bytes() const {
    Bytes sum;
    for (const Gradient& gradient : gradients) {
        sum += gradient.size();
    }
    return sum;
}

Workload workload_from_readiness(const std::vector<GradientReadiness>& gradients, Duration forward,
                                 Duration backward) {
    Workload workload;
    workload.forward.push_back({.name = "forward", .device = forward});
    for (const GradientReadiness& entry : gradients) {
        invariant(entry.ready >= Duration{0} && entry.ready <= backward,
                  "ready lies within backward");
        workload.gradients.push_back(entry.gradient);
    }
    workload.readiness.resize(gradients.size());
    std::iota(workload.readiness.rbegin(), workload.readiness.rend(), 0);
    std::stable_sort(workload.readiness.begin(), workload.readiness.end(),
                     [&](std::int32_t a, std::int32_t b) {
                         return gradients[static_cast<std::size_t>(a)].ready <
                                gradients[static_cast<std::size_t>(b)].ready;
                     });
    Duration now{0};
    for (const std::int32_t index : workload.readiness) {
        const GradientReadiness& entry = gradients[static_cast<std::size_t>(index)];
        if (workload.backward.empty() || entry.ready > now) {
            workload.backward.push_back({.name = "backward until " + entry.gradient.name,
                                         .device = entry.ready - now,
                                         .recomputed = entry.recomputed});
            now = entry.ready;
        }
        ++workload.backward.back().ready_count;
    }
    if (now < backward) {
        workload.backward.push_back({.name = "rest of backward", .device = backward - now});
    }
    return workload;
}

Duration set_readiness(const Workload& workload, std::vector<GradientReadiness>& gradients) {
    Duration now{0};
    Duration before{0};
    Duration again{0};
    auto next = workload.readiness.begin();
    for (const TimedOperation& operation : workload.backward) {
        now += operation.device;
        again += scaled(operation.device, operation.recomputed);
        for (std::int32_t k = 0; k < operation.ready_count; ++k) {
            GradientReadiness& entry = gradients[static_cast<std::size_t>(*next++)];
            entry.ready = now;
            entry.recomputed = now > before ? static_cast<double>(again.count()) /
                                                  static_cast<double>((now - before).count())
                                            : 0;
            before = now;
            again = Duration{0};
        }
    }
    return now;
}

Workload workload_from_model(const Model& model, DType gradient_dtype, const ModelTiming& timing) {
    invariant(!timing.recompute || timing.batch_norm == BatchNormSync::local,
              "no statistics are exchanged again");
    Workload workload;
    workload.host_is_device = timing.device.host_is_device;
    workload.copy_launch = timing.device.time_to_launch_copy();
    for (const Parameter& parameter : model.parameters) {
        workload.gradients.push_back({parameter.name, parameter.numel(), gradient_dtype, false,
                                      parameter.shape.empty() ? 1 : parameter.shape.front()});
    }
    if (is_float8(timing.arithmetic)) {
        mark_float8(model, workload.gradients);
    }
    const Costs costs = costs_of(model, gradient_dtype, timing);
    workload.forward = timed(forward_pass(model, timing), costs, timing.measured_forward,
                             timing.measured_forward_operations);
    std::vector<CostedOperation> backward =
        backward_pass(model, gradient_dtype, timing, workload.readiness);
    if (timing.joint.compiles_blocks) {
        hand_out_by_block(costs.graphs, backward);
    }
    workload.backward = timed(std::move(backward), costs, timing.measured_backward,
                              timing.measured_backward_operations);
    recognise_late_host(model, gradient_dtype, timing, workload);
    workload.buffer_groups = buffer_groups(model);
    workload.mix = backward_mix(workload.backward, [&](const TimedOperation& operation) {
        return model.operations[static_cast<std::size_t>(operation.source->operation)]
            .product.has_value();
    });
    return workload;
}

}  // namespace bucketwise
