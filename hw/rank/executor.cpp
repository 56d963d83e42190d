#include "hw/rank/executor.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "hw/compute/known_message.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

DType narrower(DType a, DType b) {
    return significant_bits(a) < significant_bits(b) ? a : b;
}

}  // namespace

Executor::Executor(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                   const RankPlace& place, TensorSource source)
    : source_(std::move(source)),
      memory_(scenario, workload, sync, place, source_),
      accumulation_(scenario.step.accumulation),
      accumulates_(scenario.sharding ? accumulates_unreduced(scenario)
                                     : !sync.framework.every_micro_step ||
                                           sync.framework.copies != StreamCopies::share),
      adds_shares_(sync.framework.every_micro_step),
      value_scale_(scale_within_float16(ranks(), accumulation_)),
      kernel_plan_(plan_kernels(this->workload(), model_behind(scenario))),
      no_operations_{{}, {}, kernel_plan_.columns} {}

std::variant<Duration, Optimizer> Executor::part_of_optimizer(const Scenario& scenario,
                                                              const SyncSettings& sync) {
    const auto* time = std::get_if<Duration>(&scenario.step.optimizer);
    return time != nullptr ? *time / sync.framework.updating_ranks : scenario.step.optimizer;
}

// --- a step ---

void Executor::begin_step(const ReplayedStep& step, std::int64_t number, Communicate communicate) {
    invariant(!step.sync.casts_back_beside, "casts back are made where ranks compute");
    step_ = &step;
    communicate_ = communicate;
    begin_step_again(number);
    parameters_number_ = number;
    if (memory_.arrange(step)) {
        transfers_.clear();
        numbers_.clear();
        rearranged();
        clear(memory_.reduced());  // padding is never written
    }
    if (step.sync.framework.adds_into_bucket) {
        clear(*memory_.gradients().blocks().front());
    }
    plan_transfers();
    write_shards();
    statistics_ =
        StatisticsMessages(step.program, static_cast<int>(memory_.place().of_all()), ranks());
    const std::vector<std::byte>& initial = statistics_.initial();
    memory_.reserve_statistics(std::ssize(initial));
    const std::vector<float> ones(workload().gradients.size(), 1.0F);
    const auto offset = static_cast<std::size_t>(memory_.statistics() - memory_.unused_map());
    exchanged_.assign(offset + initial.size(), {});
    std::memcpy(exchanged_.data(), ones.data(), ones.size() * sizeof(float));
    std::ranges::copy(initial, exchanged_.begin() + static_cast<std::ptrdiff_t>(offset));
    write(memory_.unused_map(), exchanged_.data(), std::ssize(exchanged_));
    prepare_step();
}

void Executor::clear(const TensorMemory& memory) {
    constexpr std::int64_t at_once = 1 << 20;
    const std::vector<std::byte> zeros(at_once);
    for (std::int64_t done = 0; done < memory.size_bytes(); done += at_once) {
        write(memory.at(done), zeros.data(), std::min(at_once, memory.size_bytes() - done));
    }
}

// All copies of a step are known before it begins.
void Executor::plan_transfers() {
    const Program& program = step_->program;
    const auto number_of = [this](Copy copy, std::int32_t subject) {
        return copy.route == CopyRoute::none ? 0 : transfer_of(copy, subject);
    };
    of_instruction_ = transformed(program.instructions, [&](const Instruction& instruction) {
        return number_of(instruction.copy, instruction.subject);
    });
    const auto of_collectives = [&](Copy Collective::*copy) {
        return transformed(program.collectives, [&](const Collective& collective) {
            const ShardsOf* shards = collective.shards();
            return number_of(collective.*copy,
                             shards == nullptr ? collective.bucket().value_or(0) : shards->move);
        });
    };
    of_before_ = of_collectives(&Collective::before);
    of_after_ = of_collectives(&Collective::after);
}

std::size_t Executor::transfer_of(Copy copy, std::int32_t subject) {
    const auto [found, is_new] = numbers_.try_emplace({copy.route, subject}, transfers_.size());
    if (is_new) {
        transfers_.push_back(memory_.transfer(copy.route, subject));
        prepare(transfers_.back());
    }
    return found->second;
}

void Executor::write_shards() {
    std::vector<std::byte> values;
    for (const ShardedParameter& of : memory_.parameters()) {
        const DType dtype = memory_.group_of(of.parameter).dtype;
        const std::int64_t rank = memory_.place().rank;
        const std::int64_t bytes = of.numel_of(rank) * element_size(dtype).count;
        values.resize(static_cast<std::size_t>(bytes));
        write_known_parameter(values.data(), {of.parameter, parameters_number_, dtype},
                              of.first_of(rank), of.numel_of(rank));
        write(memory_.shard(of.parameter), values.data(), bytes);
    }
}

void Executor::execute(std::size_t instruction) {
    const Instruction& one = step_->program.instructions[instruction];
    switch (one.kind) {
        case InstructionKind::forward:
            return kernels().forward(one.subject);
        case InstructionKind::backward:
            return backward(one.subject);
        case InstructionKind::copy:
            return perform(one.copy, of_instruction_[instruction], Lane::compute, micro_step_);
        case InstructionKind::launch:
            return launch(instruction, one.subject);
        case InstructionKind::wait:
            return wait_for(one.subject);
        case InstructionKind::clip:
            invariant(false, "real ranks do not clip: check_replayed()");
            return;
        case InstructionKind::optimizer:
            return optimizer().optimizer();
    }
}

// The first operation of backward begins a micro-step's gradients. An operation that Horovod's
// cycle cuts into parts computes in the first.
void Executor::backward(std::int32_t operation) {
    if (operation != next_backward_) {
        return;
    }
    micro_step_ += operation == 0 ? 1 : 0;
    next_backward_ = (operation + 1) % static_cast<std::int32_t>(workload().backward.size());
    const int value = rank_value(static_cast<int>(memory_.place().of_all()), number_, micro_step_);
    kernels().backward(operation, value_scale_ * static_cast<float>(value),
                       accumulates_ && micro_step_ > 0);
}

void Executor::perform(Copy copy, std::size_t transfer, Lane lane, std::int64_t micro_step) {
    if (copy.route == CopyRoute::bucket_to_host) {
        return examine(transfer, lane);
    }
    const bool adds_share =
        copy.route == CopyRoute::bucket_to_share && adds_shares_ && micro_step > 0;
    if (copy.how == Copying::adding || adds_share) {
        return add(transfer, lane);
    }
    this->copy(transfer, copy.how == Copying::averaging ? mean_factor() : 1.0, lane);
}

void Executor::copy_before(std::int32_t collective, Lane lane, std::int64_t micro_step) {
    if (const Copy copy = this->collective(collective).before; copy.route != CopyRoute::none) {
        perform(copy, of_before_[static_cast<std::size_t>(collective)], lane, micro_step);
    }
}

void Executor::copy_after(std::int32_t collective, Lane lane, std::int64_t micro_step) {
    if (const Copy copy = this->collective(collective).after; copy.route != CopyRoute::none) {
        perform(copy, of_after_[static_cast<std::size_t>(collective)], lane, micro_step);
    }
}

// --- checks ---

StepCheck Executor::check() {
    StepCheck check;
    for (const ShardedParameter& of : memory_.parameters()) {
        check_gathered(of.parameter, check);
        check_reduced(of.parameter, accumulation_, check);
    }
    if (!memory_.is_sharded()) {
        check = check_gradients(
            double{value_scale_} * mean_rank_value(ranks(), number_, accumulation_),
            transformed(workload().gradients, [&](const Gradient& gradient) {
                return rounding_tolerance(ranks(), accumulation_,
                                          wire_dtype(step_->sync.comm_hook, gradient.dtype));
            }));
    }
    if (step_->sync.reduces_unused_map) {
        check_unused_map(check);
    }
    if (!statistics_.initial().empty()) {
        check_statistics(check);
    }
    return check;
}

// Without shards nothing is gone by the end of the step.
StepCheck Executor::run_checked(const ReplayedStep& step, std::int64_t number) {
    if (!memory_.is_sharded()) {
        return {};
    }
    begin_step(step, number, Communicate::yes);
    set_out();
    StepCheck found;
    for (std::size_t i = 0; i < step.program.instructions.size(); ++i) {
        execute(i);
        check_after(step.program.instructions[i], found);
    }
    settle();
    const StepCheck left = check();
    found.largest_difference = std::max(found.largest_difference, left.largest_difference);
    if (found.wrong.empty()) {
        found.wrong = left.wrong;
    }
    return found;
}

// The last copy of a collective has been made when it has been waited for.
void Executor::check_after(const Instruction& instruction, StepCheck& check) {
    if (instruction.kind == InstructionKind::copy) {
        check_move(instruction.subject, instruction.copy.route, check);
    } else if (instruction.kind == InstructionKind::wait) {
        const Collective& awaited = collective(instruction.subject);
        check_move(awaited.shards()->move, awaited.after.route, check);
    }
}

void Executor::check_move(std::int32_t move, CopyRoute route, StepCheck& check) {
    const bool gathered = route == CopyRoute::gathered_to_unsharded ||
                          route == CopyRoute::gathered_to_unsharded_fewer;
    if (!gathered && route != CopyRoute::reduced_to_shard) {
        return;
    }
    for (const ShardedParameter& of : memory_.moved(move)) {
        if (gathered) {
            check_gathered(of.parameter, check);
        } else {
            check_reduced(of.parameter, micro_step_ + 1, check);
        }
    }
}

StepCheck Executor::check_gradients(double mean, const std::vector<double>& tolerances) {
    StepCheck check;
    for (std::size_t i = 0; i < tolerances.size(); ++i) {
        const Gradient& gradient = workload().gradients[i];
        const auto index = static_cast<std::int32_t>(i);
        const RankMemory::Reduced part = memory_.reduced_part(index);
        check.add(check_gradient(read(part.data, part.numel * element_size(part.dtype)), part.dtype,
                                 part.numel, kernel_plan_.columns[i], gradient_factor(index) * mean,
                                 tolerances[i], part.first),
                  "gradient " + gradient.name, "the mean ");
    }
    return check;
}

void Executor::check_gathered(std::int32_t parameter, StepCheck& check) {
    const ShardGroup& of = memory_.group_of(parameter);
    const Gradient& gradient = workload().gradients[static_cast<std::size_t>(parameter)];
    check.add(
        check_known_parameter(
            read(memory_.unsharded(parameter), gradient.numel * element_size(of.gathered_dtype)),
            of.gathered_dtype, gradient.numel, {parameter, parameters_number_, of.dtype}),
        "parameter " + gradient.name, "");
}

void Executor::check_reduced(std::int32_t parameter, std::int64_t micro_steps, StepCheck& check) {
    const ShardGroup& of = memory_.group_of(parameter);
    const auto index = static_cast<std::size_t>(parameter);
    const std::int64_t first = memory_.parameters()[index].first_of(memory_.place().rank);
    const Gradient& gradient = workload().gradients[index];
    const Gradient& own = memory_.updated()[index];
    const double mean = double{value_scale_} * mean_rank_value(ranks(), number_, micro_steps);
    const DType narrowest = narrower(narrower(of.dtype, of.reduced_dtype), gradient.dtype);
    check.add(
        check_gradient(read(memory_.updated_buffers().gradient(parameter), own.size()), of.dtype,
                       own.numel, kernel_plan_.columns[index], gradient_factor(parameter) * mean,
                       rounding_tolerance(ranks(), accumulation_, narrowest), first),
        "gradient " + gradient.name, "the mean ");
}

void Executor::check_unused_map(StepCheck& check) {
    std::vector<float> map(workload().gradients.size());
    const Bytes size = memory_.unused_map_size();
    std::memcpy(map.data(), read(memory_.unused_map(), size), static_cast<std::size_t>(size.count));
    const auto all = static_cast<float>(ranks());
    const auto wrong = std::ranges::find_if(map, [&](float uses) { return uses != all; });
    if (wrong != map.end() && check.wrong.empty()) {
        check.wrong = fmt::format("map of used parameters, element {}: expected {}, got {}",
                                  wrong - map.begin(), all, *wrong);
    }
}

void Executor::check_statistics(StepCheck& check) {
    const Bytes size{std::ssize(statistics_.initial())};
    const std::byte* exchanged = read(memory_.statistics(), size);
    if (check.wrong.empty()) {
        check.wrong = statistics_.what_is_wrong({exchanged, exchanged + size.count});
    }
}

}  // namespace bucketwise
