#include "hw/cpu/cpu_sharded_rank.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "hw/compute/known_parameters.h"
#include "hw/cpu/beside_communication.h"
#include "hw/rank/backward_alone.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

constexpr std::int64_t aligned_to(std::int64_t offset) {
    return (offset + Arena::alignment_bytes - 1) / Arena::alignment_bytes * Arena::alignment_bytes;
}

bool accumulates_unreduced(const Scenario& scenario) {
    return scenario.step.accumulation > 1 && scenario.sharding->gradient_sync == MicroSteps::last;
}

// In which dtype gradients of the group wait to be reduced: where several backwards add to them, in
// the one that they will be reduced in.
DType waiting_dtype(const ShardGroup& group, bool accumulates) {
    return accumulates ? group.reduced_dtype : group.gradient_dtype;
}

Workload as_written(Workload workload, const ShardPlan& plan, bool accumulates) {
    for (const ShardGroup& group : plan.groups) {
        for (const std::int32_t parameter : group.parameters) {
            workload.gradients[static_cast<std::size_t>(parameter)].dtype =
                waiting_dtype(group, accumulates);
        }
    }
    return workload;
}

std::vector<Gradient> own_parts(const Workload& workload, const ShardPlan& plan, int rank) {
    std::vector<Gradient> parts = workload.gradients;
    for (const ShardedGroupLayout& layout : layout_of(plan, workload.gradients)) {
        for (const ShardedParameter& of : layout.parameters) {
            parts[static_cast<std::size_t>(of.parameter)].numel = of.numel_of(rank);
        }
    }
    return parts;
}

// Gradients by themselves, none a view.
SyncSettings without_buckets() {
    SyncRequest none;
    none.strategy = Strategy::none;
    return settings_of_replay(none);
}

DType narrower(DType a, DType b) {
    return significant_bits(a) < significant_bits(b) ? a : b;
}

std::byte* element(std::byte* data, std::int64_t index, DType dtype) {
    return data + index * element_size(dtype).count;
}

void add(const ElementCheck& found, const std::string& what, const char* is, StepCheck& check) {
    if (!(found.largest_difference <= check.largest_difference)) {
        check.largest_difference = found.largest_difference;
    }
    if (found.wrong_element >= 0 && check.wrong.empty()) {
        check.wrong = fmt::format("{}, element {}: expected {}{}, got {}", what,
                                  found.wrong_element, is, found.expected, found.got);
    }
}

}  // namespace

// --- memory ---

void ShardedBuffers::Blocks::arrange(const std::vector<Bytes>& sizes) {
    offsets_.clear();
    std::int64_t offset = 0;
    for (const Bytes size : sizes) {
        offsets_.push_back(offset);
        offset = aligned_to(offset + size.count);
    }
    if (memory_.size_bytes() < offset) {
        memory_ = Arena();  // never two at once
        memory_ = Arena(offset);
    }
}

void ShardedBuffers::arrange(const ShardPlan& plan) {
    const std::vector<ShardGroup>& groups = plan.groups;
    shards_.arrange(transformed(groups, [&](const ShardGroup& group) {
        return group.padded_numel / plan.ranks * element_size(group.dtype);
    }));
    gathered_.arrange(transformed(groups, &ShardGroup::gathered));
    unsharded_.arrange(transformed(groups, &ShardGroup::gathered));
    reduced_.arrange(transformed(groups, &ShardGroup::reduced));
}

CpuShardedRank::CpuShardedRank(const Scenario& scenario, const Workload& workload,
                               Communicator& communicator)
    : accumulation_(scenario.step.accumulation),
      accumulates_(accumulates_unreduced(scenario)),
      value_scale_(scale_within_float16(communicator.ranks(), accumulation_)),
      plan_(make_shard_plan(workload, *scenario.sharding, communicator.ranks())),
      workload_(as_written(workload, plan_, accumulates_)),
      own_gradients_(own_parts(workload, plan_, communicator.rank())),
      layouts_(layout_of(plan_, workload_.gradients)),
      kernel_plan_(plan_kernels(workload_, model_behind(scenario))),
      gradients_(workload_.gradients, without_buckets()),
      kernels_(kernel_plan_, workload_.gradients, gradients_, Duration{0}),
      own_(own_gradients_, without_buckets()),
      optimizer_(no_operations_, own_gradients_, own_, scenario.step.optimizer),
      communicator_(communicator),
      messages_(communicator) {
    buffers_.arrange(plan_);
}

// --- a step ---

void CpuShardedRank::calibrate() {
    kernels_.calibrate();
    optimizer_.calibrate();
}

// Parameters change with every step, as an optimizer changes them.
void CpuShardedRank::begin_step(const ShardedReplay& replay, std::int64_t number,
                                Communicate communicate) {
    if (!(plan_ == replay.plan)) {
        plan_ = replay.plan;
        layouts_ = layout_of(plan_, workload_.gradients);
        buffers_.arrange(plan_);
    }
    number_ = number;
    communicate_ = communicate;
    for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
        for (const ShardedParameter& of : layouts_[i].parameters) {
            write_known_parameter(element(buffers_.shard(i), of.offset, group(i).dtype),
                                  {of.parameter, number_, group(i).dtype},
                                  of.first_of(communicator_.rank()),
                                  of.numel_of(communicator_.rank()));
        }
    }
    tickets_.clear();
    thread_.restart();
    if (communicate == Communicate::yes) {
        thread_.wait(thread_.launch([this] { messages_.meet(); }));  // all set out together
    }
}

StepTrace CpuShardedRank::run(const ShardedReplay& replay, std::int64_t number,
                              Communicate communicate) {
    begin_step(replay, number, communicate);
    return traced_step(replay.calls.size(), thread_, tickets_,
                       [&](std::size_t i) { execute(replay.calls[i]); });
}

StepTrace CpuShardedRank::compute(const ShardedReplay& replay, std::int64_t number) {
    begin_step(replay, number, Communicate::for_free);
    const std::vector<ShardedCall> calls =
        sharded_calls(computing_of(replay.program), replay.request);
    return traced_step(calls.size(), thread_, tickets_, [&](std::size_t i) { execute(calls[i]); });
}

void CpuShardedRank::execute(const ShardedCall& call) {
    const auto index = static_cast<std::size_t>(std::max(call.group, 0));
    switch (call.act) {
        case ShardedAct::forward:
            return kernels_.forward(call.subject);
        case ShardedAct::backward:
            return backward(call);
        case ShardedAct::gather_in:
            return gather_in(index);
        case ShardedAct::gather_out:
            return gather_out(index);
        case ShardedAct::reduce_in:
            return reduce_in(index);
        case ShardedAct::place:
            return place(index, call.adds);
        case ShardedAct::gather:
        case ShardedAct::reduce:
            return launch(call);
        case ShardedAct::wait:
            return thread_.wait(tickets_[static_cast<std::size_t>(call.subject)]);
        case ShardedAct::optimizer:
            return optimizer_.optimizer();
    }
}

void CpuShardedRank::backward(const ShardedCall& call) {
    const int value = rank_value(communicator_.rank(), number_, call.micro_step);
    kernels_.backward(call.subject, value_scale_ * static_cast<float>(value),
                      accumulates_ && call.micro_step > 0);
}

void CpuShardedRank::gather_in(std::size_t index) {
    const ShardGroup& of = group(index);
    const std::int64_t part = layouts_[index].part;
    cast_scaled(element(buffers_.gathered(index), communicator_.rank() * part, of.gathered_dtype),
                of.gathered_dtype, buffers_.shard(index), of.dtype, part, 1.0);
}

void CpuShardedRank::gather_out(std::size_t index) {
    const DType dtype = group(index).gathered_dtype;
    const ShardedGroupLayout& layout = layouts_[index];
    for (const ShardedParameter& of : layout.parameters) {
        std::byte* whole = element(buffers_.unsharded(index), plan_.ranks * of.offset, dtype);
        for (std::int64_t rank = 0; rank < plan_.ranks; ++rank) {
            copy_scaled(element(whole, of.first_of(rank), dtype),
                        element(buffers_.gathered(index), layout.place(of, rank), dtype), of.part,
                        dtype, 1.0);
        }
    }
}

// Divided where they are cast, which Gloo's sums leave to others. What is padded is zero.
void CpuShardedRank::reduce_in(std::size_t index) {
    const DType dtype = group(index).reduced_dtype;
    const ShardedGroupLayout& layout = layouts_[index];
    const double mean = 1.0 / static_cast<double>(plan_.ranks);
    for (std::int64_t rank = 0; rank < plan_.ranks; ++rank) {
        for (const ShardedParameter& of : layout.parameters) {
            std::byte* to = element(buffers_.reduced(index), layout.place(of, rank), dtype);
            const std::int64_t numel = of.numel_of(rank);
            if (numel > 0) {
                const DType from = gradient(of.parameter).dtype;
                cast_scaled(to, dtype,
                            element(gradients_.gradient(of.parameter), of.first_of(rank), from),
                            from, numel, mean);
            }
            std::memset(element(to, numel, dtype), 0,
                        static_cast<std::size_t>(((of.part - numel) * element_size(dtype)).count));
        }
    }
}

void CpuShardedRank::place(std::size_t index, bool adds) {
    const DType dtype = group(index).reduced_dtype;
    const ShardedGroupLayout& layout = layouts_[index];
    const int rank = communicator_.rank();
    for (const ShardedParameter& of : layout.parameters) {
        const std::byte* from = element(buffers_.reduced(index), layout.place(of, rank), dtype);
        std::byte* to = own_.gradient(of.parameter);
        const std::int64_t numel = of.numel_of(rank);
        if (adds) {
            add_cast(to, group(index).dtype, from, dtype, numel);
        } else {
            cast_scaled(to, group(index).dtype, from, dtype, numel, 1.0);
        }
    }
}

// --- collectives ---

void CpuShardedRank::launch(const ShardedCall& call) {
    invariant(call.subject == std::ssize(tickets_), "collectives are launched in their order");
    tickets_.push_back(thread_.launch([this, call] {
        const auto index = static_cast<std::size_t>(call.group);
        if (communicate_ == Communicate::for_free) {
            return;
        }
        if (call.act == ShardedAct::gather) {
            gather(index);
        } else {
            reduce(index, call.is_placed);
        }
    }));
}

void CpuShardedRank::gather(std::size_t index) {
    const Bytes part = layouts_[index].part * element_size(group(index).gathered_dtype);
    std::byte* all = buffers_.gathered(index);
    communicator_.all_gather(all + communicator_.rank() * part.count, all, part);
}

// PyTorch's writes what it reduced to a tensor of its own.
void CpuShardedRank::reduce(std::size_t index, bool is_placed) {
    communicator_.reduce_scatter_sum(buffers_.reduced(index), layouts_[index].part,
                                     group(index).reduced_dtype);
    if (is_placed) {
        place(index, false);
    }
}

// --- what must have come of it ---

StepCheck CpuShardedRank::check() {
    StepCheck check;
    for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
        check_gathered(i, check);
        check_reduced(i, accumulation_, check);
    }
    return check;
}

StepCheck CpuShardedRank::run_checked(const ShardedReplay& replay, std::int64_t number) {
    begin_step(replay, number, Communicate::yes);
    StepCheck found;
    for (const ShardedCall& call : replay.calls) {
        execute(call);
        check_after(call, found);
    }
    for (const CommunicationThread::Ticket ticket : tickets_) {
        thread_.wait(ticket);
    }
    const StepCheck left = check();
    found.largest_difference = std::max(found.largest_difference, left.largest_difference);
    if (found.wrong.empty()) {
        found.wrong = left.wrong;
    }
    return found;
}

void CpuShardedRank::check_after(const ShardedCall& call, StepCheck& check) {
    const auto index = static_cast<std::size_t>(std::max(call.group, 0));
    if (call.act == ShardedAct::gather_out) {
        check_gathered(index, check);
    } else if (call.act == ShardedAct::place) {
        check_reduced(index, call.micro_step + 1, check);
    }
}

void CpuShardedRank::check_gathered(std::size_t index, StepCheck& check) {
    const ShardGroup& of = group(index);
    for (const ShardedParameter& parameter : layouts_[index].parameters) {
        const std::byte* whole =
            element(buffers_.unsharded(index), plan_.ranks * parameter.offset, of.gathered_dtype);
        add(check_known_parameter(whole, of.gathered_dtype, parameter.numel,
                                  {parameter.parameter, number_, of.dtype}),
            "parameter " + gradient(parameter.parameter).name, "", check);
    }
}

void CpuShardedRank::check_reduced(std::size_t index, std::int64_t micro_steps, StepCheck& check) {
    const ShardGroup& of = group(index);
    const int ranks = communicator_.ranks();
    const double mean = double{value_scale_} * mean_rank_value(ranks, number_, micro_steps);
    for (const ShardedParameter& parameter : layouts_[index].parameters) {
        const std::int32_t gradient_index = parameter.parameter;
        const DType narrowest =
            narrower(narrower(of.dtype, of.reduced_dtype), gradient(gradient_index).dtype);
        add(check_gradient(own_.gradient(gradient_index), of.dtype,
                           parameter.numel_of(communicator_.rank()),
                           kernel_plan_.columns[static_cast<std::size_t>(gradient_index)],
                           gradient_factor(gradient_index) * mean,
                           rounding_tolerance(ranks, accumulation_, narrowest),
                           parameter.first_of(communicator_.rank())),
            "gradient " + gradient(gradient_index).name, "the mean ", check);
    }
}

// --- beside each other ---

std::vector<Duration> CpuShardedRank::backward_alone() {
    const auto once = [this] {
        return times_of_backward(workload_.backward.size(),
                                 [this](std::int32_t operation) { run_backward(operation); });
    };
    return times_alone(
        workload_.backward.size(), [&] { once(); }, once);
}

ContentionTrace CpuShardedRank::contend(const Message& message, std::int64_t iterations,
                                        const std::vector<Duration>& alone) {
    return contend_with(messages_, message, iterations, alone,
                        [this](std::int32_t operation) { run_backward(operation); });
}

}  // namespace bucketwise
