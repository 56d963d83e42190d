#include "sim/sharding/sharded_step.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/sharding/fsdp_builder.h"
#include "sim/sharding/zero3_builder.h"

namespace bucketwise {
namespace {

bool has_optimizer(MicroStepPlace place) {
    return place == MicroStepPlace::only || place == MicroStepPlace::last;
}

// `moves`: how many the program has that the part adds its own to.
void append(Program part, std::int32_t moves, Program& program) {
    const auto instructions = static_cast<std::int32_t>(program.instructions.size());
    const auto collectives = static_cast<std::int32_t>(program.collectives.size());
    for (Instruction& instruction : part.instructions) {
        if (!is_compute(instruction.kind)) {
            instruction.subject += collectives;
        }
        if (instruction.is_launched_ahead()) {
            const bool follows_part = instruction.launched_after == before_all;
            const std::int32_t last_before = instructions > 0 ? instructions - 1 : before_all;
            instruction.launched_after =
                follows_part ? last_before : instruction.launched_after + instructions;
        }
        program.instructions.push_back(instruction);
    }
    for (Collective& collective : part.collectives) {
        if (collective.follows) {
            *collective.follows += collectives;
        }
        if (auto* shards = std::get_if<ShardsOf>(&collective.cargo)) {
            shards->move += moves;
        }
        program.collectives.push_back(collective);
    }
    program.host_is_device = part.host_is_device;
}

}  // namespace

ShardedProgram build_sharded_micro_step(const StepInput& input, const ShardingRequest& request,
                                        const ShardPlan& plan, MicroStepPlace place,
                                        const ShardedMemory& memory) {
    ShardedProgram built;
    built.memory.now = memory.now;
    const auto build = [&](auto builder) {
        builder.micro_step();
        if (has_optimizer(place)) {
            builder.optimizer();
        }
    };
    if (request.strategy == ShardedStrategy::zero3) {
        built.moves_share_buffers = true;
        build(Zero3Builder(input, request.zero3, plan, place, built));
    } else {
        build(FsdpBuilder(input, request, plan, place, built));
    }
    return built;
}

ShardedMemory sharded_memory(const ShardedInput& input, const ShardPlan& plan) {
    if (input.step.step.accumulation == 1) {
        return build_sharded_micro_step(input.step, input.request, plan, MicroStepPlace::only)
            .memory;
    }
    ShardedMemory memory;
    for (const MicroStepPlace place :
         {MicroStepPlace::first, MicroStepPlace::middle, MicroStepPlace::last}) {
        const bool is_there = place != MicroStepPlace::middle || input.step.step.accumulation > 2;
        if (is_there) {
            memory.go_on_with(
                build_sharded_micro_step(input.step, input.request, plan, place, memory).memory);
        }
    }
    return memory;
}

ShardedProgram build_sharded_program(const ShardedInput& input, const ShardPlan& plan) {
    const std::int64_t steps = input.step.step.accumulation;
    invariant(steps >= 1, "a step has a micro-step");
    ShardedProgram whole;
    for (std::int64_t i = 0; i < steps; ++i) {
        const MicroStepPlace place = steps == 1       ? MicroStepPlace::only
                                     : i == 0         ? MicroStepPlace::first
                                     : i + 1 == steps ? MicroStepPlace::last
                                                      : MicroStepPlace::middle;
        ShardedProgram part =
            build_sharded_micro_step(input.step, input.request, plan, place, whole.memory);
        append(std::move(part.program), static_cast<std::int32_t>(whole.moves.size()),
               whole.program);
        std::ranges::move(part.moves, std::back_inserter(whole.moves));
        whole.moves_share_buffers = part.moves_share_buffers;
        whole.memory.go_on_with(part.memory);
    }
    if (whole.moves.empty()) {
        whole.moves = transformed(plan.groups, &ShardGroup::parameters);
    }
    return whole;
}

}  // namespace bucketwise
