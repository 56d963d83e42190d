#include "hw/rank/replay_rank.h"

#include <algorithm>

#include <fmt/format.h>

#include "hw/compute/gradient_pattern.h"

namespace bucketwise {

// Gradients that live in buckets need a place also before the first step, and without buckets.
ReplayRank::ReplayRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                       int rank, int ranks)
    : workload_(workload),
      rank_(rank),
      accumulation_(scenario.step.accumulation),
      value_scale_(scale_within_float16(ranks, accumulation_)),
      kernel_plan_(plan_kernels(workload_, model_behind(scenario))),
      plan_(make_plan(workload_, sync.policy)),
      step_{.rules = ReplayRules(sync, ranks)} {}

void ReplayRank::begin_step(const ReplayedStep& step, std::int64_t number,
                            Communicate communicate) {
    invariant(!step.sync.casts_back_beside, "casts back are made where ranks compute");
    step_ = {.program = &step.program,
             .rules = ReplayRules(step.sync, step_.rules.ranks()),
             .reduces_unused_map = step.sync.reduces_unused_map,
             .number = number,
             .communicate = communicate};
    statistics_ = StatisticsMessages(step.program, rank_, step_.rules.ranks());
    if (!step.plan.buckets.empty() && !(plan_ == step.plan)) {
        plan_ = step.plan;
        lay_out();
    }
}

void ReplayRank::execute(const Instruction& instruction) {
    switch (instruction.kind) {
        case InstructionKind::copy_buffers:
            return copy_buffers(instruction.subject);
        case InstructionKind::forward:
            return kernels().forward(instruction.subject);
        case InstructionKind::backward:
            return backward(instruction.subject);
        case InstructionKind::copy_in:
        case InstructionKind::copy_back:
        case InstructionKind::cast_down:
        case InstructionKind::cast_up:
        case InstructionKind::scale:
            return copy(instruction.kind, instruction.subject);
        case InstructionKind::pack:
            return pack(instruction.subject, PackDirection::into_place, step_.rules.pack_factor());
        case InstructionKind::launch:
            return launch(instruction.subject);
        case InstructionKind::wait:
            return wait_for(instruction.subject);
        case InstructionKind::unpack:
            return pack(instruction.subject, PackDirection::out_of_place, 1.0);
        case InstructionKind::optimizer:
            return kernels().optimizer();
        case InstructionKind::check:
            break;
    }
    invariant(false, "an instruction of a strategy, not of a framework's own rule");
}

// The last operation of backward ends a micro-step.
void ReplayRank::backward(std::int32_t operation) {
    const float value =
        value_scale_ * static_cast<float>(rank_value(rank_, step_.number, step_.micro_step));
    kernels().backward(operation, value, step_.micro_step > 0);
    if (operation + 1 == static_cast<std::int32_t>(workload_.backward.size())) {
        ++step_.micro_step;
    }
}

double ReplayRank::exact_mean() const {
    return double{value_scale_} * mean_rank_value(step_.rules.ranks(), step_.number, accumulation_);
}

std::vector<double> ReplayRank::tolerances() const {
    std::vector<double> tolerances;
    for (const Gradient& one : workload_.gradients) {
        tolerances.push_back(step_.rules.tolerance(one.dtype, accumulation_));
    }
    return tolerances;
}

void ReplayRank::check_unused_map(std::span<const float> map, StepCheck& check) const {
    const auto ranks = static_cast<float>(step_.rules.ranks());
    const auto wrong =
        std::find_if(map.begin(), map.end(), [&](float uses) { return uses != ranks; });
    if (wrong != map.end() && check.wrong.empty()) {
        check.wrong = fmt::format("map of used parameters, element {}: expected {}, got {}",
                                  wrong - map.begin(), ranks, *wrong);
    }
}

void ReplayRank::check_statistics(const std::vector<std::byte>& block, StepCheck& check) const {
    if (check.wrong.empty()) {
        check.wrong = statistics_.what_is_wrong(block);
    }
}

}  // namespace bucketwise
